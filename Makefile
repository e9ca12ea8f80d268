# Two commands: `make run` shows what Quire does, `make test` shows that it is right. Both set up
# what is missing first. The logic is in `cargo xtask`.

.PHONY: run test

run:
	@./scripts/setup.sh
	@PATH="$${CARGO_HOME:-$$HOME/.cargo}/bin:$$PATH" cargo xtask demo

test:
	@./scripts/setup.sh
	@PATH="$${CARGO_HOME:-$$HOME/.cargo}/bin:$$PATH" cargo xtask ci
