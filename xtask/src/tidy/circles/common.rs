//! Methods of the standard library, as far as they lead from one value to another.

use super::index::{Index, Method};
use super::types::Ty;

/// The result of the method `name` on a receiver whose own type does not define it.
pub(super) fn result(index: &Index, receiver: &Ty, name: &str) -> Ty {
    let option = |ty: Ty| Ty::Foreign("Option".into(), vec![ty]);
    match (receiver, name) {
        (Ty::Unknown, _) => only(index, name).map_or(Ty::Unknown, |one| one.result.clone()),
        (Ty::Foreign(..), _) if UNWRAPS.contains(&name) => receiver.inner(),
        (Ty::Foreign(..), _) if PICKS.contains(&name) && receiver.is("[]") => {
            option(receiver.inner())
        }
        (Ty::Foreign(..), "ok_or" | "ok_or_else") => {
            Ty::Foreign("Result".into(), vec![receiver.inner()])
        }
        (Ty::Foreign(..), "ok") => option(receiver.inner()),
        (Ty::Foreign(..), _) if CHANGES.contains(&name) => Ty::Unknown,
        (Ty::Foreign(..), _) => receiver.clone(),
        (_, "clone" | "as_ref" | "as_mut" | "by_ref" | "into_iter" | "iter") => receiver.clone(),
        _ => Ty::Unknown,
    }
}

/// The method `name`, where one type of the crate alone has it and no other library does.
pub(super) fn only<'a>(index: &'a Index, name: &str) -> Option<&'a Method> {
    index.only(name).filter(|_| !is_common(name))
}

/// These give what a container holds.
const UNWRAPS: [&str; 6] =
    ["unwrap", "expect", "unwrap_or", "unwrap_or_else", "unwrap_or_default", "lock"];

/// These give one element of a slice or iterator, or none.
const PICKS: [&str; 10] =
    ["get", "get_mut", "first", "last", "next", "find", "pop", "nth", "min_by_key", "max_by_key"];

/// The results of these have another type, which a closure decides.
const CHANGES: [&str; 12] = [
    "map",
    "and_then",
    "then",
    "then_some",
    "fold",
    "filter_map",
    "map_or",
    "map_or_else",
    "flat_map",
    "collect",
    "zip",
    "enumerate",
];

/// Names of methods of the standard library: on a receiver whose type is not evident they say
/// nothing.
fn is_common(name: &str) -> bool {
    COMMON.split_whitespace().any(|common| common == name)
}

const COMMON: &str = "
    add all any as_bytes as_deref as_mut as_mut_ptr as_mut_slice as_ptr as_ref as_slice as_str
    borrow by_ref cast chain checked_add checked_sub chunks clear clone cloned cmp collect
    compare_exchange contains copied copy copy_from_slice count drain end ends_with entry
    enumerate eq expect extend fetch_add fetch_and fetch_or fetch_sub fill filter filter_map
    find first flat_map flatten flush fold for_each from get get_mut get_or_insert_with hash
    insert inspect into into_inner into_iter into_iter_mut is_empty is_err is_none is_ok
    is_power_of_two is_some iter iter_mut join keys last len load lock lock_mut map map_err max
    min new next next_back next_power_of_two nth offset ok ok_or ok_or_else or or_else parse
    partial_cmp peek pop position pow push range read remove replace resize retain rev rposition
    saturating_sub set skip skip_while sort split split_at split_at_mut split_first split_last
    start starts_with step step_by store sub sum swap swap_remove take take_while then then_some
    to_owned to_string trim truncate try_from try_into try_lock unwrap unwrap_or
    unwrap_or_default unwrap_or_else update values windows with wrapping_add wrapping_sub write
    zip
";
