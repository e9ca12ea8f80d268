//! Which constants and variants stand beside each other: `Kind::Table` and `Kind::Folio`, say.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{Expr, Path};

/// The last names of paths, by the name before them; of one package.
#[derive(Debug, Default)]
pub(crate) struct Names(BTreeMap<String, BTreeSet<String>>);

impl Names {
    /// Adds those of a file: values only, since a call needs another one that takes the same.
    pub(crate) fn add(&mut self, file: &syn::File) {
        self.visit_file(file);
    }

    /// The next name after that of `path`, in a circle; `None` if there is no other.
    pub(crate) fn after(&self, path: &Path) -> Option<String> {
        let (prefix, name) = split(path)?;
        // `Self` is another type in each file.
        let all = self.0.get(&prefix).filter(|_| prefix != "Self")?;
        let mut after = all.iter().skip_while(|other| **other != name).skip(1).chain(all);
        after.next().filter(|other| **other != name).cloned()
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_expr(&mut self, expr: &'ast Expr) {
        match expr {
            Expr::Path(path) => {
                if let Some((prefix, name)) = split(&path.path) {
                    self.0.entry(prefix).or_default().insert(name);
                }
            }
            Expr::Call(call) => {
                return call.args.iter().for_each(|argument| self.visit_expr(argument));
            }
            _ => {}
        }
        visit::visit_expr(self, expr);
    }
}

/// The last two names of a path, if the last is that of a constant or a variant.
fn split(path: &Path) -> Option<(String, String)> {
    let mut last = path.segments.iter().rev();
    let (name, prefix) = (last.next()?, last.next()?);
    let name = name.ident.to_string();
    let is_value = name.starts_with(|c: char| c.is_ascii_uppercase());
    is_value.then(|| (prefix.ident.to_string(), name))
}
