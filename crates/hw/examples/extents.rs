//! Prints GB/s of each clear backend against the extent size, cold and cleared-then-read, and the
//! choices of calibration.
//!
//! `cargo run --release -p quire-hw --example extents [-- MIB [ROUNDS]] [quick]`: MIB of scratch
//! memory, 1024 by default; `quick` calibrates as a boot would.

use std::collections::BTreeMap;
use std::time::Instant;

use memmap2::{Advice, MmapMut};
use quire_hw::extent::{Backend, CopyBackend};
use quire_hw::{Calibration, Chosen, Measurement, Reuse, calibrate};

fn main() -> std::io::Result<()> {
    let quick = std::env::args().any(|word| word == "quick");
    let effort = if quick { Calibration::QUICK } else { Calibration::THOROUGH };
    let mut arguments = std::env::args().skip(1).map_while(|word| word.parse::<usize>().ok());
    let mib = arguments.next().unwrap_or(1024).max(1);
    let rounds = arguments.next().unwrap_or(effort.rounds);
    let mut map = MmapMut::map_anon((mib + 2) << 20)?;
    #[cfg(target_os = "linux")]
    map.advise(Advice::HugePage)?;
    let skip = map.as_ptr().align_offset(2 << 20);
    let scratch = &mut map[skip..][..mib << 20];
    scratch.fill(1);

    let origin = Instant::now();
    let clock = || origin.elapsed().as_nanos() as u64;
    let candidates: Vec<Backend> = Backend::available().collect();
    let mut results = BTreeMap::new();
    let effort = Calibration { rounds, ..effort };
    let begin = Instant::now();
    let chosen = calibrate(scratch, clock, &candidates, effort, |measured: &Measurement| {
        let form = measured.reuse == Reuse::Soon;
        results.insert((form, measured.bytes, measured.backend.name()), measured.mb_per_s);
    });
    let took = begin.elapsed();
    for (form, title) in [(false, "cold clear, GB/s"), (true, "clear, then read, GB/s")] {
        table(title, form, &candidates, &results, &chosen);
    }
    println!("calibrated in {:.2} s", took.as_secs_f64());
    println!("allocation stops at {:?} bytes", chosen.allocation_stops());
    println!("unit for 1 ms: {:?} bytes", chosen.unit_bytes(1_000_000));
    copies(scratch, rounds);
    Ok(())
}

fn table(
    title: &str,
    form: bool,
    candidates: &[Backend],
    results: &BTreeMap<(bool, u64, &str), u32>,
    chosen: &Chosen,
) {
    print!("\n{title}\n{:>8}", "KiB");
    candidates.iter().for_each(|backend| print!(" {backend:>13}"));
    println!(" {:>13} {:>13}", "chosen", "default");
    let usual = Chosen::default_with_vectors();
    let reuse = if form { Reuse::Soon } else { Reuse::Later };
    for bytes in (12..=30).map(|log2| 1u64 << log2) {
        let speed = |name| results.get(&(form, bytes, name)).copied();
        if candidates.iter().all(|backend| speed(backend.name()).is_none()) {
            break;
        }
        print!("{:>8}", bytes >> 10);
        for backend in candidates {
            print!(" {:>13.1}", f64::from(speed(backend.name()).unwrap_or(0)) / 1e3);
        }
        println!(" {:>13} {:>13}", chosen.backend(bytes, reuse), usual.backend(bytes, reuse));
    }
}

/// Copies between the halves of the scratch, walking through both.
fn copies(scratch: &mut [u8], rounds: usize) {
    let (to, from) = scratch.split_at_mut(scratch.len() / 2);
    let backends: Vec<CopyBackend> = CopyBackend::available().collect();
    print!("\ncold copy, GB/s copied\n{:>8}", "KiB");
    backends.iter().for_each(|backend| print!(" {backend:>13}"));
    println!();
    for bytes in [4 << 10, 64 << 10, 2 << 20, 32 << 20, to.len()] {
        if bytes > to.len() {
            break;
        }
        let mut times = vec![Vec::new(); backends.len()];
        let mut walk = 0;
        for _ in 0..rounds {
            for (backend, times) in backends.iter().zip(&mut times) {
                let count = (Calibration::THOROUGH.batch_bytes / bytes).clamp(1, to.len() / bytes);
                let begin = Instant::now();
                for _ in 0..count {
                    walk = if walk + 2 * bytes > to.len() { 0 } else { walk + bytes };
                    backend.copy(&mut to[walk..][..bytes], &from[walk..][..bytes]);
                }
                times.push(begin.elapsed().as_secs_f64() / count as f64);
            }
        }
        print!("{:>8}", bytes >> 10);
        for times in &mut times {
            times.sort_by(f64::total_cmp);
            print!(" {:>13.1}", bytes as f64 / times[times.len() / 2] / 1e9);
        }
        println!();
    }
}
