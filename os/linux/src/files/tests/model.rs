//! The tree beside a naive model: a map from paths to nodes.

use std::borrow::ToOwned;
use std::collections::BTreeMap;
use std::format;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Write(String, String),
    Mkdir(String),
    Unlink(String),
    Rmdir(String),
    Rename(String, String),
    Read(String),
    List(String),
}

/// A path; `None` is a directory.
type Model = BTreeMap<String, Option<String>>;

fn path() -> impl Strategy<Value = String> {
    proptest::collection::vec("[abc]", 1..4).prop_map(|parts| format!("/{}", parts.join("/")))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (path(), "[xyz]{0,9}").prop_map(|(path, text)| Step::Write(path, text)),
        path().prop_map(Step::Mkdir),
        path().prop_map(Step::Mkdir),
        path().prop_map(Step::Unlink),
        path().prop_map(Step::Rmdir),
        (path(), path()).prop_map(|(from, to)| Step::Rename(from, to)),
        path().prop_map(Step::Read),
        path().prop_map(Step::List),
    ]
}

fn above(path: &str) -> &str {
    &path[..path.rfind('/').unwrap()]
}

/// Whether the directory above `path` is there.
fn check_above(model: &Model, path: &str) -> Result<()> {
    let mut at = String::new();
    for part in above(path).split('/').skip(1) {
        at = format!("{at}/{part}");
        match model.get(&at) {
            None => return Err(Errno::ENOENT),
            Some(Some(_)) => return Err(Errno::ENOTDIR),
            Some(None) => {}
        }
    }
    Ok(())
}

fn children(model: &Model, path: &str) -> Vec<String> {
    let below = format!("{path}/");
    let names = model.keys().filter_map(|key| key.strip_prefix(&below));
    names.filter(|name| !name.contains('/')).map(ToOwned::to_owned).collect()
}

fn rename(model: &mut Model, from: &str, to: &str) -> Result<()> {
    check_above(model, from)?;
    check_above(model, to)?;
    let node = model.get(from).ok_or(Errno::ENOENT)?.clone();
    let there = model.get(to).cloned();
    if node.is_none() && (to.starts_with(&format!("{from}/"))) {
        return Err(Errno::EINVAL);
    }
    if from.starts_with(&format!("{to}/")) {
        return Err(Errno::ENOTEMPTY);
    }
    match (&node, &there) {
        (None, Some(Some(_))) => return Err(Errno::ENOTDIR),
        (Some(_), Some(None)) => return Err(Errno::EISDIR),
        _ => {}
    }
    if from == to {
        return Ok(());
    }
    if there.is_some() && !children(model, to).is_empty() {
        return Err(Errno::ENOTEMPTY);
    }
    let below = format!("{from}/");
    let moved: Vec<String> =
        model.keys().filter(|key| *key == from || key.starts_with(&below)).cloned().collect();
    for key in moved {
        let value = model.remove(&key).unwrap();
        model.insert(format!("{to}{}", &key[from.len()..]), value);
    }
    Ok(())
}

fn remove(model: &mut Model, path: &str, directory: bool) -> Result<()> {
    check_above(model, path)?;
    match (model.get(path).ok_or(Errno::ENOENT)?, directory) {
        (None, false) => return Err(Errno::EISDIR),
        (Some(_), true) => return Err(Errno::ENOTDIR),
        (None, true) if !children(model, path).is_empty() => return Err(Errno::ENOTEMPTY),
        _ => {}
    }
    model.remove(path);
    Ok(())
}

fn read(model: &Model, path: &str) -> Result<String> {
    check_above(model, path)?;
    model.get(path).ok_or(Errno::ENOENT)?.clone().ok_or(Errno::EISDIR)
}

fn try_step(
    world: &World,
    model: &mut Model,
    step: &Step,
) -> core::result::Result<(), TestCaseError> {
    match step {
        Step::Write(path, text) => {
            let flags = raw::O_WRONLY | raw::O_CREAT | raw::O_TRUNC;
            let expected = check_above(model, path).and_then(|()| match model.get(path) {
                Some(None) => Err(Errno::EISDIR),
                _ => Ok(()),
            });
            let opened = world.open(path, flags).map_err(errno);
            prop_assert_eq!(opened.map(|_| ()), expected);
            if let Ok(fd) = opened {
                prop_assert_eq!(world.write(fd, text), Ok(text.len()));
                world.run(|calls| calls.close(fd)).unwrap();
                model.insert(path.clone(), Some(text.clone()));
            }
        }
        Step::Mkdir(path) => {
            let expected = check_above(model, path).and_then(|()| match model.get(path) {
                Some(_) => Err(Errno::EEXIST),
                None => Ok(()),
            });
            prop_assert_eq!(world.mkdir(path), expected);
            if expected.is_ok() {
                model.insert(path.clone(), None);
            }
        }
        Step::Unlink(path) => prop_assert_eq!(world.unlink(path), remove(model, path, false)),
        Step::Rmdir(path) => prop_assert_eq!(world.rmdir(path), remove(model, path, true)),
        Step::Rename(from, to) => {
            prop_assert_eq!(world.rename(from, to, 0), rename(model, from, to));
        }
        Step::Read(path) => {
            prop_assert_eq!(world.read_file(path).map_err(errno), read(model, path));
        }
        Step::List(path) => {
            let expected = read(model, path).map_or_else(
                |errno| if errno == Errno::EISDIR { Ok(children(model, path)) } else { Err(errno) },
                |_| Err(Errno::ENOTDIR),
            );
            prop_assert_eq!(world.list(path, 64), expected);
        }
    }
    Ok(())
}

/// Directories count the directories in them.
fn check_links(world: &World, model: &Model) {
    for (path, _) in model.iter().filter(|(_, what)| what.is_none()) {
        let is_directory = |name: &&String| model[&format!("{path}/{name}")].is_none();
        let below = children(model, path).iter().filter(is_directory).count();
        assert_eq!(world.about(path).unwrap().meta.links, 2 + below as u32, "{path}");
    }
}

proptest! {
    #[test]
    fn the_tree_is_as_a_map_of_paths(steps in proptest::collection::vec(step(), 1..80)) {
        let world = World::new();
        let mut model = Model::new();
        for step in &steps {
            try_step(&world, &mut model, step)?;
        }
        check_links(&world, &model);
        for (path, what) in &model {
            match what {
                Some(text) => prop_assert_eq!(&world.read_file(path).unwrap(), text),
                None => prop_assert_eq!(world.list(path, 999), Ok(children(&model, path))),
            }
        }
    }
}
