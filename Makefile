# `make run` shows what Quire does, `make test` shows that it is right, and `make soak` looks for hours
# for what `make test` did not find. All set up what is missing first. The logic is in `cargo xtask`.

.PHONY: run test soak

run:
	@./scripts/setup.sh
	@PATH="$${CARGO_HOME:-$$HOME/.cargo}/bin:$$PATH" cargo xtask demo

test:
	@./scripts/setup.sh
	@PATH="$${CARGO_HOME:-$$HOME/.cargo}/bin:$$PATH" cargo xtask ci

soak:
	@./scripts/setup.sh
	@PATH="$${CARGO_HOME:-$$HOME/.cargo}/bin:$$PATH" cargo xtask soak
