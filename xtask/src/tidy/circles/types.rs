//! Types as far as calls need them: which item of the crate a value is, through references and the
//! common containers.

use std::collections::BTreeMap;

use syn::{GenericArgument, GenericParam, Generics, Path, PathArguments, Type, TypeParamBound};

use super::super::names::{Names, Place};

/// The type of a value.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum Ty {
    /// A type or trait of the crate: its module and name.
    Item(Place, String),
    /// Another crate's type with its arguments; slices, arrays and iterators are `[]`.
    Foreign(String, Vec<Ty>),
    /// A tuple.
    Tuple(Vec<Ty>),
    /// Not evident.
    #[default]
    Unknown,
}

impl Ty {
    /// The first type argument of a container.
    pub(crate) fn inner(&self) -> Ty {
        match self {
            Ty::Foreign(_, arguments) => arguments.first().cloned().unwrap_or_default(),
            _ => Ty::Unknown,
        }
    }

    /// Whether it is the container `name`.
    pub(crate) fn is(&self, name: &str) -> bool {
        matches!(self, Ty::Foreign(own, _) if own == name)
    }
}

/// Where a type is written: the module, `Self`, and the parameters with their bounds.
#[derive(Clone, Default)]
pub(crate) struct Scope {
    pub(crate) place: Place,
    pub(crate) own: Ty,
    pub(crate) parameters: BTreeMap<String, Ty>,
}

impl Scope {
    /// The same with more parameters.
    pub(crate) fn with(&self, names: &Names, generics: &Generics) -> Scope {
        let mut scope = self.clone();
        for parameter in &generics.params {
            if let GenericParam::Type(parameter) = parameter {
                let bound = scope.bound(names, parameter.bounds.iter());
                scope.parameters.insert(parameter.ident.to_string(), bound);
            }
        }
        let clause = generics.where_clause.iter().flat_map(|clause| &clause.predicates);
        for predicate in clause {
            if let syn::WherePredicate::Type(predicate) = predicate
                && let Type::Path(path) = &predicate.bounded_ty
                && let Some(name) = path.path.get_ident()
            {
                let bound = scope.bound(names, predicate.bounds.iter());
                let known = scope.parameters.entry(name.to_string()).or_default();
                if !matches!(known, Ty::Item(..)) {
                    *known = bound;
                }
            }
        }
        scope
    }

    /// The trait of the crate among bounds; a type of others without one.
    fn bound<'a>(&self, names: &Names, bounds: impl Iterator<Item = &'a TypeParamBound>) -> Ty {
        for bound in bounds {
            if let TypeParamBound::Trait(bound) = bound
                && let ty @ Ty::Item(..) = self.path(names, &bound.path)
            {
                return ty;
            }
        }
        Ty::Foreign("parameter".into(), Vec::new())
    }

    /// The type that is written `ty` here.
    pub(crate) fn ty(&self, names: &Names, ty: &Type) -> Ty {
        match ty {
            Type::Reference(reference) => self.ty(names, &reference.elem),
            Type::Paren(paren) => self.ty(names, &paren.elem),
            Type::Group(group) => self.ty(names, &group.elem),
            Type::Array(array) => Ty::Foreign("[]".into(), vec![self.ty(names, &array.elem)]),
            Type::Slice(slice) => Ty::Foreign("[]".into(), vec![self.ty(names, &slice.elem)]),
            Type::Tuple(tuple) => {
                Ty::Tuple(tuple.elems.iter().map(|ty| self.ty(names, ty)).collect())
            }
            Type::ImplTrait(list) => self.dynamic(names, list.bounds.iter()),
            Type::TraitObject(list) => self.dynamic(names, list.bounds.iter()),
            Type::Path(path) if path.qself.is_none() => self.path(names, &path.path),
            Type::Path(_) | Type::Infer(_) | Type::Macro(_) => Ty::Unknown,
            _ => Ty::Foreign("other".into(), Vec::new()),
        }
    }

    /// `impl` and `dyn`: the crate's trait, or what an iterator yields.
    fn dynamic<'a>(
        &self,
        names: &Names,
        bounds: impl Iterator<Item = &'a TypeParamBound> + Clone,
    ) -> Ty {
        for bound in bounds.clone() {
            if let TypeParamBound::Trait(bound) = bound
                && let Some(last) = bound.path.segments.last()
                && last.ident.to_string().ends_with("Iterator")
                && let PathArguments::AngleBracketed(arguments) = &last.arguments
            {
                for argument in &arguments.args {
                    if let GenericArgument::AssocType(item) = argument {
                        return Ty::Foreign("[]".into(), vec![self.ty(names, &item.ty)]);
                    }
                }
            }
        }
        self.bound(names, bounds)
    }

    /// The type that `path` means here.
    pub(crate) fn path(&self, names: &Names, path: &Path) -> Ty {
        let parts: Vec<String> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        if parts == ["Self"] {
            return self.own.clone();
        }
        if let [name] = parts.as_slice()
            && let Some(bound) = self.parameters.get(name)
        {
            return bound.clone();
        }
        if parts.first().is_some_and(|first| first == "Self" || self.parameters.contains_key(first))
        {
            return Ty::Unknown;
        }
        if let Some(found) = names.find(&self.place, &parts) {
            return match found.rest.is_empty() {
                true => Ty::Item(found.place, found.name),
                false => Ty::Unknown,
            };
        }
        let Some(last) = path.segments.last() else { return Ty::Unknown };
        let mut arguments = Vec::new();
        if let PathArguments::AngleBracketed(list) = &last.arguments {
            for argument in &list.args {
                if let GenericArgument::Type(ty) = argument {
                    arguments.push(self.ty(names, ty));
                }
            }
        }
        let name = last.ident.to_string();
        match name.as_str() {
            "Box" | "Arc" | "Rc" | "ManuallyDrop" => {
                arguments.into_iter().next().unwrap_or_default()
            }
            "Vec" | "ArrayVec" | "VecDeque" => Ty::Foreign("[]".into(), arguments),
            _ => Ty::Foreign(name, arguments),
        }
    }
}
