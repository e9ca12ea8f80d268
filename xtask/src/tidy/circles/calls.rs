//! The uses that one source makes of others: paths, imports and method calls.

use std::collections::BTreeMap;

use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Expr, FnArg, Item, Member, Pat, Path, Signature, Token};

use super::super::Source;
use super::super::names::{Names, each_import};
use super::super::tree::is_for_tests;
use super::common;
use super::index::Index;
use super::types::{Scope, Ty};

/// A use of another source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Use {
    /// The line that makes it.
    pub(crate) line: usize,
    /// The number of the other source.
    pub(crate) target: usize,
    /// The name that it uses.
    pub(crate) name: String,
}

/// The uses in the source with this number, tests left out.
pub(crate) fn uses(names: &Names, index: &Index, number: usize, source: &Source) -> Vec<Use> {
    let scope = Scope { place: source.module.clone(), ..Scope::default() };
    let mut walk = Walk { names, index, scope, locals: vec![BTreeMap::new()], uses: Vec::new() };
    let is_list = ["/mod.rs", "/lib.rs"].iter().any(|end| source.path.ends_with(end));
    for item in &source.items {
        // A table of contents offers what its children define; that is not a use.
        if !(is_list && offers_children(names, &source.module, item)) {
            walk.visit_item(item);
        }
    }
    walk.uses.retain(|one| one.target != number);
    walk.uses
}

fn offers_children(names: &Names, place: &[String], item: &Item) -> bool {
    let Item::Use(import) = item else { return false };
    let mut all = true;
    each_import(&import.tree, &mut Vec::new(), &mut |_, path| {
        let path = path.strip_prefix(&["self".to_owned()]).unwrap_or(path);
        let child = path.first().map(|first| [place, std::slice::from_ref(first)].concat());
        all &= child.is_some_and(|child| names.is_module(&child));
    });
    all && !matches!(import.vis, syn::Visibility::Inherited)
}

struct Walk<'a> {
    names: &'a Names,
    index: &'a Index,
    scope: Scope,
    locals: Vec<BTreeMap<String, Ty>>,
    uses: Vec<Use>,
}

impl Walk<'_> {
    fn record(&mut self, line: usize, target: usize, name: &str) {
        self.uses.push(Use { line, target, name: name.to_owned() });
    }

    fn local(&self, name: &str) -> Option<&Ty> {
        self.locals.iter().rev().find_map(|level| level.get(name))
    }

    fn name(&mut self, name: &str, ty: Ty) {
        if let Some(level) = self.locals.last_mut() {
            level.insert(name.to_owned(), ty);
        }
    }

    /// Walks a function or a part of it with parameters, names and `Self` of its own.
    fn inside(&mut self, scope: Scope, walk: impl FnOnce(&mut Self)) {
        let outer = std::mem::replace(&mut self.scope, scope);
        self.locals.push(BTreeMap::new());
        walk(self);
        self.locals.pop();
        self.scope = outer;
    }

    fn parameters(&mut self, signature: &Signature) {
        for input in &signature.inputs {
            match input {
                FnArg::Receiver(_) => self.name("self", self.scope.own.clone()),
                FnArg::Typed(input) => {
                    let ty = self.scope.ty(self.names, &input.ty);
                    self.bind(&input.pat, &ty);
                }
            }
        }
    }

    /// Gives the names in a pattern the types that they have when it matches a `ty`.
    fn bind(&mut self, pattern: &Pat, ty: &Ty) {
        match pattern {
            Pat::Ident(name) => {
                self.name(&name.ident.to_string(), ty.clone());
                if let Some((_, inner)) = &name.subpat {
                    self.bind(inner, ty);
                }
            }
            Pat::Type(typed) => {
                let ty = match self.scope.ty(self.names, &typed.ty) {
                    Ty::Unknown => ty.clone(),
                    ty => ty,
                };
                self.bind(&typed.pat, &ty);
            }
            Pat::Reference(reference) => self.bind(&reference.pat, ty),
            Pat::Paren(paren) => self.bind(&paren.pat, ty),
            Pat::Or(list) => list.cases.iter().for_each(|case| self.bind(case, ty)),
            Pat::Slice(list) => list.elems.iter().for_each(|part| self.bind(part, &ty.inner())),
            Pat::Tuple(tuple) => {
                for (at, part) in tuple.elems.iter().enumerate() {
                    let ty = match ty {
                        Ty::Tuple(types) => types.get(at).cloned().unwrap_or_default(),
                        _ => Ty::Unknown,
                    };
                    self.bind(part, &ty);
                }
            }
            Pat::TupleStruct(tuple) => {
                for (at, part) in tuple.elems.iter().enumerate() {
                    let ty = self.part_of(&tuple.path, ty, &at.to_string());
                    self.bind(part, &ty);
                }
            }
            Pat::Struct(list) => {
                for field in &list.fields {
                    let name = match &field.member {
                        Member::Named(name) => name.to_string(),
                        Member::Unnamed(at) => at.index.to_string(),
                    };
                    let ty = self.part_of(&list.path, ty, &name);
                    self.bind(&field.pat, &ty);
                }
            }
            _ => {}
        }
    }

    /// The type of a field in the pattern `path(…)` or `path { … }` for a value of type `ty`.
    fn part_of(&self, path: &Path, ty: &Ty, field: &str) -> Ty {
        let last = path.segments.last().map_or_else(String::new, |part| part.ident.to_string());
        if let Ty::Foreign(name, arguments) = ty {
            let at = usize::from(last == "Err" && name == "Result");
            return arguments.get(at).cloned().unwrap_or_default();
        }
        if let Some((owner, rest)) = self.owner(path) {
            let field = rest.map_or_else(|| field.to_owned(), |rest| format!("{rest}.{field}"));
            return self.index.field(&owner, &field);
        }
        self.index.field(ty, &format!("{last}.{field}"))
    }

    /// The type that a path begins with, and the name within it: `Type::name`, `Self::name`.
    fn owner(&self, path: &Path) -> Option<(Ty, Option<String>)> {
        let parts: Vec<String> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        let first = parts.first()?;
        let own = match self.scope.parameters.get(first) {
            Some(bound) => Some(bound.clone()),
            None if first == "Self" => Some(self.scope.own.clone()),
            None => None,
        };
        if let Some(own) = own {
            return Some((own, parts.get(1).cloned()));
        }
        let found = self.names.find(&self.scope.place, &parts)?;
        Some((Ty::Item(found.place, found.name), found.rest.first().cloned()))
    }

    /// The type of an expression, as far as it is evident.
    fn infer(&self, expr: &Expr) -> Ty {
        match expr {
            Expr::Path(path) => self.infer_path(&path.path),
            Expr::Paren(inner) => self.infer(&inner.expr),
            Expr::Group(inner) => self.infer(&inner.expr),
            Expr::Reference(inner) => self.infer(&inner.expr),
            Expr::Unary(inner) => self.infer(&inner.expr),
            Expr::Try(inner) => self.infer(&inner.expr).inner(),
            Expr::Index(inner) => self.infer(&inner.expr).inner(),
            Expr::Cast(cast) => self.scope.ty(self.names, &cast.ty),
            Expr::Struct(value) => match self.owner(&value.path) {
                Some((ty, _)) => ty,
                None => self.scope.path(self.names, &value.path),
            },
            Expr::Tuple(tuple) => Ty::Tuple(tuple.elems.iter().map(|e| self.infer(e)).collect()),
            Expr::Lit(_) | Expr::Binary(_) | Expr::Closure(_) | Expr::Range(_) => {
                Ty::Foreign("value".into(), Vec::new())
            }
            Expr::Field(field) => {
                let base = self.infer(&field.base);
                match (&field.member, &base) {
                    (Member::Named(name), _) => self.index.field(&base, &name.to_string()),
                    (Member::Unnamed(at), Ty::Tuple(types)) => {
                        types.get(at.index as usize).cloned().unwrap_or_default()
                    }
                    (Member::Unnamed(at), _) => self.index.field(&base, &at.index.to_string()),
                }
            }
            Expr::Call(call) => match &*call.func {
                Expr::Path(path) => self.infer_call(&path.path, call.args.first()),
                _ => Ty::Unknown,
            },
            Expr::MethodCall(call) => {
                let receiver = self.infer(&call.receiver);
                let name = call.method.to_string();
                match self.index.methods(&receiver, &name) {
                    Some(methods) => methods.first().map_or(Ty::Unknown, |one| one.result.clone()),
                    None => common::result(self.index, &receiver, &name),
                }
            }
            Expr::If(branch) => match branch.then_branch.stmts.last() {
                Some(syn::Stmt::Expr(value, None)) => self.infer(value),
                _ => Ty::Unknown,
            },
            _ => Ty::Unknown,
        }
    }

    fn infer_path(&self, path: &Path) -> Ty {
        if let Some(name) = path.get_ident()
            && let Some(ty) = self.local(&name.to_string())
        {
            return ty.clone();
        }
        match self.owner(path) {
            Some((owner, Some(name))) => match self.index.methods(&owner, &name) {
                Some(methods) => methods.first().map_or(Ty::Unknown, |one| one.result.clone()),
                // A variant.
                None => owner,
            },
            Some((Ty::Item(place, name), None)) => match self.index.value(&place, &name) {
                // A unit struct.
                Ty::Unknown => Ty::Item(place, name),
                ty => ty,
            },
            _ => Ty::Unknown,
        }
    }

    fn infer_call(&self, path: &Path, argument: Option<&Expr>) -> Ty {
        let last = path.segments.last().map_or_else(String::new, |part| part.ident.to_string());
        match last.as_str() {
            "Some" => {
                Ty::Foreign("Option".into(), argument.map(|e| self.infer(e)).into_iter().collect())
            }
            "Ok" => {
                Ty::Foreign("Result".into(), argument.map(|e| self.infer(e)).into_iter().collect())
            }
            _ => match self.infer_path(path) {
                Ty::Unknown => match self.scope.path(self.names, path) {
                    // `u64::from` and the like make a value of another crate's type.
                    Ty::Foreign(..) if path.segments.len() > 1 => {
                        Ty::Foreign("value".into(), Vec::new())
                    }
                    _ => Ty::Unknown,
                },
                ty => ty,
            },
        }
    }
}

impl<'ast> Visit<'ast> for Walk<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = attributes(item);
        if !is_for_tests(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        let mut scope = self.scope.clone();
        scope.place.push(module.ident.to_string());
        self.inside(scope, |walk| visit::visit_item_mod(walk, module));
    }

    fn visit_item_use(&mut self, import: &'ast syn::ItemUse) {
        let place = self.scope.place.clone();
        let line = import.span().start().line;
        let mut found = Vec::new();
        each_import(&import.tree, &mut Vec::new(), &mut |name, path| {
            if name.is_some() {
                found.extend(self.names.find(&place, path));
            }
        });
        for one in found {
            self.record(line, one.source, &one.name);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        let scope = self.scope.with(self.names, &item.sig.generics);
        self.inside(scope, |walk| {
            walk.parameters(&item.sig);
            visit::visit_item_fn(walk, item);
        });
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if is_for_tests(&item.attrs) {
            return;
        }
        let scope = self.scope.with(self.names, &item.sig.generics);
        self.inside(scope, |walk| {
            walk.parameters(&item.sig);
            visit::visit_impl_item_fn(walk, item);
        });
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        let scope = self.scope.with(self.names, &item.sig.generics);
        self.inside(scope, |walk| {
            walk.parameters(&item.sig);
            visit::visit_trait_item_fn(walk, item);
        });
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let mut scope = self.scope.with(self.names, &item.generics);
        scope.own = scope.ty(self.names, &item.self_ty);
        self.inside(scope, |walk| visit::visit_item_impl(walk, item));
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        let mut scope = self.scope.with(self.names, &item.generics);
        scope.own = Ty::Item(scope.place.clone(), item.ident.to_string());
        self.inside(scope, |walk| visit::visit_item_trait(walk, item));
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        let scope = self.scope.clone();
        self.inside(scope, |walk| visit::visit_block(walk, block));
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if is_for_tests(&local.attrs) {
            return;
        }
        visit::visit_local(self, local);
        let ty = local.init.as_ref().map_or(Ty::Unknown, |init| self.infer(&init.expr));
        self.bind(&local.pat, &ty);
    }

    fn visit_expr_let(&mut self, condition: &'ast syn::ExprLet) {
        visit::visit_expr_let(self, condition);
        let ty = self.infer(&condition.expr);
        self.bind(&condition.pat, &ty);
    }

    fn visit_expr_match(&mut self, expr: &'ast syn::ExprMatch) {
        self.visit_expr(&expr.expr);
        let ty = self.infer(&expr.expr);
        for arm in &expr.arms {
            let scope = self.scope.clone();
            self.inside(scope, |walk| {
                walk.bind(&arm.pat, &ty);
                visit::visit_arm(walk, arm);
            });
        }
    }

    fn visit_expr_for_loop(&mut self, expr: &'ast syn::ExprForLoop) {
        self.visit_expr(&expr.expr);
        let ty = self.infer(&expr.expr).inner();
        let scope = self.scope.clone();
        self.inside(scope, |walk| {
            walk.bind(&expr.pat, &ty);
            walk.visit_pat(&expr.pat);
            walk.visit_block(&expr.body);
        });
    }

    fn visit_expr_closure(&mut self, closure: &'ast syn::ExprClosure) {
        let scope = self.scope.clone();
        self.inside(scope, |walk| {
            for input in &closure.inputs {
                walk.bind(input, &Ty::Unknown);
            }
            visit::visit_expr_closure(walk, closure);
        });
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let name = call.method.to_string();
        let receiver = self.infer(&call.receiver);
        let target = match (&receiver, self.index.methods(&receiver, &name)) {
            (_, Some(methods)) => methods.first().map(|one| one.source),
            (Ty::Foreign(..) | Ty::Tuple(_), None) => None,
            (_, None) => common::only(self.index, &name).map(|one| one.source),
        };
        if let Some(target) = target {
            self.record(call.method.span().start().line, target, &name);
        }
        self.visit_expr(&call.receiver);
        for argument in &call.args {
            match argument {
                // `option.map(|x| …)`, `slice.iter().for_each(|x| …)`.
                Expr::Closure(closure) if closure.inputs.len() == 1 => {
                    let scope = self.scope.clone();
                    self.inside(scope, |walk| {
                        walk.bind(&closure.inputs[0], &receiver.inner());
                        walk.visit_expr(&closure.body);
                    });
                }
                other => self.visit_expr(other),
            }
        }
    }

    fn visit_path(&mut self, path: &'ast Path) {
        let line = path.span().start().line;
        let is_local = path.get_ident().is_some_and(|name| self.local(&name.to_string()).is_some());
        if !is_local && let Some((owner, name)) = self.owner(path) {
            if let Ty::Item(place, own) = &owner
                && let Some(found) = self.names.find(place, std::slice::from_ref(own))
            {
                self.record(line, found.source, own);
            }
            let methods = name.as_ref().and_then(|name| self.index.methods(&owner, name));
            if let (Some(method), Some(name)) = (methods.and_then(<[_]>::first), name) {
                let target = method.source;
                self.record(line, target, &name);
            }
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let parse = Punctuated::<Expr, Token![,]>::parse_terminated;
        if let Ok(arguments) = call.parse_body_with(parse) {
            // The visitor outlives these; they are walked here and forgotten.
            let mut inner = Walk {
                names: self.names,
                index: self.index,
                scope: self.scope.clone(),
                locals: self.locals.clone(),
                uses: Vec::new(),
            };
            arguments.iter().for_each(|argument| inner.visit_expr(argument));
            self.uses.append(&mut inner.uses);
        }
        visit::visit_macro(self, call);
    }
}

fn attributes(item: &Item) -> &[syn::Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
