//! Random lives of shared memory, beside a naive model: the word that each page of a file holds.

use std::collections::BTreeMap;
use std::vec::Vec;

use quire_arch::{Arch, Arm4k, Sv39, X86_64};
use quire_machine::Config;
use quire_units::{Asid, PageSpan};

use super::migrate_tests::random;
use super::shared_tests::{ALL, PAGES, START, Scene, with};
use crate::cache::FilePages;
use crate::phys::fail::FailPlan;
use crate::space::Space;
use crate::{Error, Scope, Stop};

/// A random life: the spaces, and the word of each page of the file.
struct Life<A: Arch> {
    seed: u64,
    asid: u16,
    spaces: Vec<Space<A>>,
    words: BTreeMap<u64, u64>,
    length: u64,
}

impl<A: Arch> Life<A> {
    fn draw(&mut self, end: u64) -> u64 {
        random(&mut self.seed, end)
    }

    /// A failure that was planted excuses this.
    fn excused(stop: Stop) -> bool {
        matches!(stop, Stop::Refuse(Error::NoMemory(_) | Error::Failed(..)))
    }

    fn step(&mut self, scene: &Scene<'_, '_, '_, A>) {
        let mm = scene.mm;
        let plan = match self.draw(12) {
            0 => FailPlan::Nth(1 + self.draw(4)),
            1 => FailPlan::From(1 + self.draw(4)),
            _ => FailPlan::Never,
        };
        if self.draw(10) == 0 {
            let first = self.draw(64);
            scene.bad.borrow_mut().extend(first..first + 20);
        }
        let at = self.draw(self.spaces.len() as u64) as usize;
        let page = self.draw(self.length);
        let word = self.draw(1 << 40);
        let count = 1 + self.draw(40);
        mm.allocator().set_fail_plan(plan);
        match self.draw(24) {
            0..=4 => match scene.try_access(&self.spaces[at], page, Some(word)) {
                Ok(_) => drop(self.words.insert(page, word)),
                Err(stop) => assert!(Self::excused(stop), "{stop:?}"),
            },
            5 => match scene.through_file(page, Some(word)) {
                Ok(_) => drop(self.words.insert(page, word)),
                Err(stop) => assert!(Self::excused(stop), "{stop:?}"),
            },
            6 | 7 => {
                let found = match self.draw(2) {
                    0 => scene.through_file(page, None),
                    _ => scene.try_access(&self.spaces[at], page, None),
                };
                match found {
                    Ok(found) => assert_eq!(found, self.words.get(&page).copied().unwrap_or(0)),
                    Err(stop) => assert!(Self::excused(stop), "{stop:?}"),
                }
            }
            8..=12 => self.page_out(scene, at, page, count),
            13 => scene.begin_writing(count as usize / 8 + 1),
            14 | 15 => scene.answer(),
            16 | 17 => self.change(scene, page, count),
            18 if self.spaces.len() < 4 => {
                self.asid += 1;
                if let Ok(child) = mm.fork(&self.spaces[at], Asid(self.asid)) {
                    self.spaces.push(child);
                }
            }
            19 if self.spaces.len() > 1 => scene.end([self.spaces.swap_remove(at)]),
            20 => self.lock(scene, at, page, count),
            21 => {
                let all: Vec<&Space<A>> = self.spaces.iter().collect();
                let done = scene.empty_device(&all);
                assert!(done.is_ok_and(|()| scene.sizes().1 == 0) || done.is_err());
                done.unwrap_or_else(|stop| assert!(Self::excused(stop), "{stop:?}"));
            }
            way => self.rearrange(scene, at, way == 22),
        }
        mm.allocator().set_fail_plan(FailPlan::Never);
        if self.draw(3) == 0 {
            scene.bad.borrow_mut().clear();
        }
        let all: Vec<&Space<A>> = self.spaces.iter().collect();
        scene.check(&all);
    }

    /// Collapses the file's pages, or moves folios.
    fn rearrange(&mut self, scene: &Scene<'_, '_, '_, A>, at: usize, collapses: bool) {
        let all: Vec<&Space<A>> = self.spaces.iter().collect();
        if !collapses {
            scene.mm.paging().migrate(all[at], ALL, &all[..]).expect("sound pages");
            return;
        }
        match scene.mm.reclaim().collapse_file(all[at], ALL, &all[..]) {
            Err(Stop::Need(need)) => {
                scene.serve(need).unwrap_or_else(|stop| assert!(Self::excused(stop)));
            }
            Err(stop) => assert!(Self::excused(stop), "{stop:?}"),
            Ok(_) => {}
        }
    }

    fn page_out(&mut self, scene: &Scene<'_, '_, '_, A>, at: usize, page: u64, count: u64) {
        let way = self.draw(4);
        let all: Vec<&Space<A>> = self.spaces.iter().collect();
        let end = (page + count).min(PAGES);
        let span = PageSpan::new(START.add(page), START.add(end));
        match way {
            0 => drop(scene.mm.reclaim().reclaim(count, &all[..])),
            1 => drop(scene.mm.paging().page_out(all[at], span, Scope::Own, &all[..])),
            2 => drop(scene.mm.paging().page_out(all[at], span, Scope::All, &all[..])),
            _ => drop(scene.page_out(all[at], Scope::All, &all)),
        }
    }

    /// Truncates the file, or makes a hole.
    fn change(&mut self, scene: &Scene<'_, '_, '_, A>, page: u64, count: u64) {
        let (all, files): (Vec<&Space<A>>, _) = (self.spaces.iter().collect(), scene.mm.files());
        let way = random(&mut self.seed, 3);
        let end = if way == 0 { PAGES } else { page + 1 };
        let done = match way {
            2 => files.punch(scene.file, FilePages::new(page, page + count), &all[..]),
            _ => files.truncate(scene.file, end, &all[..]),
        };
        scene.mm.allocator().set_fail_plan(FailPlan::Never);
        if let Err(error) = done {
            assert!(matches!(error, Error::NoMemory(_)), "{error:?}");
            let again = match way {
                2 => files.punch(scene.file, FilePages::new(page, page + count), &all[..]),
                _ => files.truncate(scene.file, end, &all[..]),
            };
            again.expect("there is memory now");
        }
        match way {
            2 => self.words.retain(|at, _| !(page..page + count).contains(at)),
            _ => {
                self.length = end;
                self.words.retain(|at, _| *at < end);
            }
        }
    }

    fn lock(&mut self, scene: &Scene<'_, '_, '_, A>, at: usize, page: u64, count: u64) {
        let end = (page + count).min(self.length);
        let (space, span) = (&self.spaces[at], PageSpan::new(START.add(page), START.add(end)));
        if random(&mut self.seed, 2) == 0 {
            let _ = scene.mm.spaces().munlock(space, ALL);
            return;
        }
        match scene.mm.mlock(space, span) {
            Err(Stop::Need(need)) => {
                scene.serve(need).unwrap_or_else(|stop| assert!(Self::excused(stop)));
            }
            Err(stop) => assert!(Self::excused(stop), "{stop:?}"),
            Ok(()) => {}
        }
    }
}

fn lives<A: Arch>(config: fn() -> Config) {
    for seed in 0..24 {
        let slots = if seed % 3 == 0 { 72 } else { 512 };
        with::<A>(config(), slots, |scene| {
            let spaces = std::vec![scene.shared(1), scene.shared(2)];
            let words = BTreeMap::new();
            let mut life = Life { seed, asid: 2, spaces, words, length: PAGES };
            (0..160).for_each(|_| life.step(scene));
            scene.bad.borrow_mut().clear();
            for page in 0..life.length {
                let word = life.words.get(&page).copied().unwrap_or(0);
                for space in &life.spaces {
                    let found = scene.access(space, page, None);
                    assert_eq!(found, word, "{} seed {seed}, page {page}", A::NAME);
                }
            }
            scene.end(life.spaces);
        });
    }
}

#[test]
fn d9_no_byte_is_lost_between_forks_writes_holes_failures_and_page_outs() {
    lives::<X86_64>(Config::x86_64);
    lives::<Arm4k>(Config::arm64_4k);
    lives::<Sv39>(Config::riscv64_sv39);
}
