//! The definitions of a crate that calls lead to: methods with their files and results, fields with
//! their types.

use std::collections::{BTreeMap, BTreeSet};

use syn::{Fields, ImplItem, Item, ReturnType, Signature, TraitItem};

use super::super::Source;
use super::super::names::{Names, Place};
use super::super::tree::is_for_tests;
use super::types::{Scope, Ty};

/// A type or trait: its module and name.
pub(crate) type Owner = (Place, String);

/// A method or function.
#[derive(Clone, Debug)]
pub(crate) struct Method {
    /// The number of the source that defines it.
    pub(crate) source: usize,
    /// The type of its result.
    pub(crate) result: Ty,
}

/// All definitions of a crate.
#[derive(Default)]
pub(crate) struct Index {
    /// Methods, associated functions and constants by owner and name.
    methods: BTreeMap<(Owner, String), Vec<Method>>,
    /// Owners of methods of this name.
    owners: BTreeMap<String, BTreeSet<Owner>>,
    /// Types of fields; those of a variant have its name and a dot in front.
    fields: BTreeMap<(Owner, String), Ty>,
    /// Types that functions, constants and statics have or return.
    values: BTreeMap<Owner, Ty>,
    /// Targets of `Deref`.
    targets: BTreeMap<Owner, Ty>,
    /// Names of methods of other crates.
    elsewhere: BTreeSet<String>,
}

impl Index {
    /// The definitions in `sources`; `others` are the libraries that a receiver may come from.
    pub(crate) fn new(names: &Names, sources: &[&Source], others: &[&Source]) -> Self {
        let mut index = Self::default();
        for other in others {
            each_method(&other.items, &mut |name| {
                index.elsewhere.insert(name);
            });
        }
        for (number, source) in sources.iter().enumerate() {
            index.learn(names, number, &source.module, &source.items);
        }
        index
    }

    /// The methods `name` of the type `owner`, or of the types it stands for.
    pub(crate) fn methods(&self, owner: &Ty, name: &str) -> Option<&[Method]> {
        let mut owner = owner;
        for _ in 0..4 {
            let Ty::Item(place, own) = owner else { return None };
            let key = (place.clone(), own.clone());
            if let Some(methods) = self.methods.get(&(key.clone(), name.to_owned())) {
                return Some(methods);
            }
            owner = self.targets.get(&key)?;
        }
        None
    }

    /// The method `name`, where one type or trait of the crate alone has it, and no other crate.
    pub(crate) fn only(&self, name: &str) -> Option<&Method> {
        if self.elsewhere.contains(name) {
            return None;
        }
        let owners = self.owners.get(name)?;
        let owner = owners.first().filter(|_| owners.len() == 1)?;
        match self.methods.get(&(owner.clone(), name.to_owned()))?.as_slice() {
            [method] => Some(method),
            _ => None,
        }
    }

    pub(crate) fn field(&self, owner: &Ty, name: &str) -> Ty {
        let Ty::Item(place, own) = owner else { return Ty::Unknown };
        let key = (place.clone(), own.clone());
        let field = self.fields.get(&(key.clone(), name.to_owned()));
        match (field, self.targets.get(&key)) {
            (Some(ty), _) => ty.clone(),
            (None, Some(target)) if target != owner => self.field(target, name),
            _ => Ty::Unknown,
        }
    }

    pub(crate) fn value(&self, place: &[String], name: &str) -> Ty {
        self.values.get(&(place.to_vec(), name.to_owned())).cloned().unwrap_or_default()
    }

    fn learn(&mut self, names: &Names, number: usize, place: &[String], items: &[Item]) {
        let scope = Scope { place: place.to_vec(), ..Scope::default() };
        let owner = |name: &syn::Ident| (place.to_vec(), name.to_string());
        for item in items {
            match item {
                Item::Mod(module) if !is_for_tests(&module.attrs) => {
                    if let Some((_, items)) = &module.content {
                        let inner = [place, &[module.ident.to_string()]].concat();
                        self.learn(names, number, &inner, items);
                    }
                }
                Item::Struct(item) if !is_for_tests(&item.attrs) => {
                    let scope = scope.with(names, &item.generics);
                    self.learn_fields(names, &scope, &owner(&item.ident), "", &item.fields);
                }
                Item::Enum(item) if !is_for_tests(&item.attrs) => {
                    let scope = scope.with(names, &item.generics);
                    for variant in &item.variants {
                        let prefix = format!("{}.", variant.ident);
                        let own = owner(&item.ident);
                        self.learn_fields(names, &scope, &own, &prefix, &variant.fields);
                    }
                }
                Item::Fn(item) if !is_for_tests(&item.attrs) => {
                    let result = result(names, &scope, &item.sig);
                    self.values.insert(owner(&item.sig.ident), result);
                }
                Item::Const(item) if !is_for_tests(&item.attrs) => {
                    self.values.insert(owner(&item.ident), scope.ty(names, &item.ty));
                }
                Item::Static(item) if !is_for_tests(&item.attrs) => {
                    self.values.insert(owner(&item.ident), scope.ty(names, &item.ty));
                }
                Item::Trait(item) if !is_for_tests(&item.attrs) => {
                    self.learn_trait(names, number, &scope, item);
                }
                Item::Impl(item) if !is_for_tests(&item.attrs) => {
                    self.learn_impl(names, number, &scope, item);
                }
                _ => {}
            }
        }
    }

    fn learn_fields(
        &mut self,
        names: &Names,
        scope: &Scope,
        owner: &Owner,
        prefix: &str,
        fields: &Fields,
    ) {
        for (at, field) in fields.iter().enumerate() {
            let name = field.ident.as_ref().map_or_else(|| at.to_string(), ToString::to_string);
            let ty = scope.ty(names, &field.ty);
            self.fields.insert((owner.clone(), format!("{prefix}{name}")), ty);
        }
    }

    fn learn_trait(&mut self, names: &Names, number: usize, scope: &Scope, item: &syn::ItemTrait) {
        let owner = (scope.place.clone(), item.ident.to_string());
        let mut scope = scope.with(names, &item.generics);
        scope.own = Ty::Item(owner.0.clone(), owner.1.clone());
        for part in &item.items {
            match part {
                TraitItem::Fn(part) => {
                    let result = result(names, &scope, &part.sig);
                    self.method(&owner, &part.sig.ident, Method { source: number, result });
                }
                TraitItem::Const(part) => {
                    let result = scope.ty(names, &part.ty);
                    self.method(&owner, &part.ident, Method { source: number, result });
                }
                _ => {}
            }
        }
    }

    fn learn_impl(&mut self, names: &Names, number: usize, scope: &Scope, item: &syn::ItemImpl) {
        let mut scope = scope.with(names, &item.generics);
        scope.own = scope.ty(names, &item.self_ty);
        let Ty::Item(place, name) = scope.own.clone() else { return };
        let owner = (place, name);
        let is_foreign =
            |(path, _): &(syn::Path, _)| !matches!(scope.path(names, path), Ty::Item(..));
        let is_trait = item.trait_.is_some();
        let of_others = item.trait_.as_ref().is_some_and(is_foreign);
        for part in &item.items {
            match part {
                // Calls of `Drop`, `Iterator` and the like are not seen; their names are common.
                ImplItem::Fn(part) if !of_others && !is_for_tests(&part.attrs) => {
                    let result = result(names, &scope, &part.sig);
                    let method = Method { source: number, result };
                    let key = (owner.clone(), part.sig.ident.to_string());
                    match is_trait {
                        // The trait's own declaration counts where the receiver is not evident.
                        true => self.methods.entry(key).or_default().push(method),
                        false => self.method(&owner, &part.sig.ident, method),
                    }
                }
                ImplItem::Const(part) if !is_trait => {
                    let result = scope.ty(names, &part.ty);
                    self.method(&owner, &part.ident, Method { source: number, result });
                }
                ImplItem::Type(part) if of_others && part.ident == "Target" => {
                    self.targets.insert(owner.clone(), scope.ty(names, &part.ty));
                }
                _ => {}
            }
        }
    }

    fn method(&mut self, owner: &Owner, name: &syn::Ident, method: Method) {
        let name = name.to_string();
        self.owners.entry(name.clone()).or_default().insert(owner.clone());
        self.methods.entry((owner.clone(), name)).or_default().push(method);
    }
}

fn result(names: &Names, scope: &Scope, signature: &Signature) -> Ty {
    match &signature.output {
        ReturnType::Default => Ty::Tuple(Vec::new()),
        ReturnType::Type(_, ty) => scope.with(names, &signature.generics).ty(names, ty),
    }
}

/// Calls `visit` with the name of each method that items define.
fn each_method(items: &[Item], visit: &mut dyn FnMut(String)) {
    for item in items {
        match item {
            Item::Impl(item) => {
                for part in &item.items {
                    if let ImplItem::Fn(part) = part {
                        visit(part.sig.ident.to_string());
                    }
                }
            }
            Item::Trait(item) => {
                for part in &item.items {
                    if let TraitItem::Fn(part) = part {
                        visit(part.sig.ident.to_string());
                    }
                }
            }
            Item::Mod(item) => {
                let items = item.content.iter().flat_map(|(_, items)| items);
                items.for_each(|item| each_method(std::slice::from_ref(item), visit));
            }
            _ => {}
        }
    }
}
