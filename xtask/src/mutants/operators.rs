//! The changes that may be made to one function: slips of an expert's kind, found in its syntax.
//!
//! Each is a piece of the source, and another piece to take its place. No type is known here, so
//! some do not compile; [`build`](super::build) drops those.

use std::fmt;
use std::ops::Range;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    AngleBracketedGenericArguments, Attribute, BinOp, Block, Expr, ExprConst, ExprRepeat, Item,
    Lit, Member, Pat, Path, RangeLimits, Stmt, Type, UnOp,
};

use super::siblings::Names;

/// The call that asks the switch, in the text of a mutant.
pub(crate) const ON: &str = "@on@";

/// A kind of slip.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Operator {
    /// `<` for `<=` and the like.
    Edge,
    /// A step of one more or less: `+ 1` is left out, a range ends early.
    One,
    /// A number that is one off, the other of two truth values.
    Constant,
    /// The other of a pair: `start` for `end`, `min` for `max`.
    Pair,
    /// A comparison for equality, such as of a field of an identity, is left out.
    Compare,
    /// One condition of several is left out, or the guard of an arm.
    Condition,
    /// A `!` is forgotten.
    Not,
    /// A special case is not looked for.
    Skip,
    /// A call is forgotten: a flush, a count, a note.
    Call,
    /// A value is not stored.
    Store,
    /// An error is ignored.
    Ignore,
    /// Two steps happen in the other order.
    Swap,
    /// A guard is dropped at once.
    Guard,
    /// A fence is forgotten.
    Fence,
    /// A memory order is weaker.
    Weaken,
    /// Another constant or variant of the same type.
    Sibling,
    /// A slip that a record plants: see `planted`.
    Planted,
}

impl Operator {
    /// Its name, also in records.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Edge => "edge",
            Self::One => "one",
            Self::Constant => "constant",
            Self::Pair => "pair",
            Self::Compare => "compare",
            Self::Condition => "condition",
            Self::Not => "not",
            Self::Skip => "skip",
            Self::Call => "call",
            Self::Store => "store",
            Self::Ignore => "ignore",
            Self::Swap => "swap",
            Self::Guard => "guard",
            Self::Fence => "fence",
            Self::Weaken => "weaken",
            Self::Sibling => "sibling",
            Self::Planted => "planted",
        }
    }

    /// Whether only a model of other CPUs can notice it: the host's own order is strong.
    pub(crate) const fn is_for_models(self) -> bool {
        matches!(self, Self::Fence | Self::Weaken)
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A change of one place of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Site {
    pub(crate) operator: Operator,
    /// The bytes of the file that give way.
    pub(crate) range: Range<usize>,
    /// Their text, and the one that a slip would have left there.
    pub(crate) was: String,
    pub(crate) becomes: String,
    /// The text in the copy, where the switch decides; [`ON`] stands for the switch.
    pub(crate) switched: String,
}

/// Pairs of names of which one is easily taken for the other.
const PAIRS: [(&str, &str); 12] = [
    ("start", "end"),
    ("first", "last"),
    ("min", "max"),
    ("align_down", "align_up"),
    ("is_some", "is_none"),
    ("is_ok", "is_err"),
    ("next", "prev"),
    ("next", "next_back"),
    ("head", "tail"),
    ("contains", "intersects"),
    ("any", "all"),
    ("left", "right"),
];

/// All sites in the body of a function that gives a value back unless `is_unit`. `source` is the
/// file's text.
pub(crate) fn sites(source: &str, body: &Block, is_unit: bool, siblings: &Names) -> Vec<Site> {
    let mut finder = Finder { source, siblings, found: Vec::new() };
    finder.block(body, is_unit);
    finder.found
}

struct Finder<'a> {
    source: &'a str,
    siblings: &'a Names,
    found: Vec<Site>,
}

impl Finder<'_> {
    fn text(&self, of: &impl Spanned) -> &str {
        &self.source[of.span().byte_range()]
    }

    /// `of` has another value.
    fn value(&mut self, operator: Operator, of: &impl Spanned, becomes: String) {
        let (range, was) = (of.span().byte_range(), self.text(of).to_owned());
        let switched = format!("(if {ON} {{ {becomes} }} else {{ {was} }})");
        self.found.push(Site { operator, range, was, becomes, switched });
    }

    /// The statements at `range` are others.
    fn steps(&mut self, operator: Operator, range: Range<usize>, becomes: String) {
        let was = self.source[range.clone()].to_owned();
        let switched = format!("if {ON} {{ {becomes} }} else {{ {was} }}");
        self.found.push(Site { operator, range, was, becomes, switched });
    }

    /// The same text with `name` for the name in it.
    fn renamed(&mut self, of: &impl Spanned, ident: &proc_macro2::Ident) {
        let (whole, part) = (of.span().byte_range(), ident.span().byte_range());
        let name = ident.to_string();
        for (one, other) in PAIRS {
            let new = match name.as_str() {
                name if name == one => other,
                name if name == other => one,
                _ => continue,
            };
            let before = &self.source[whole.start..part.start];
            let becomes = format!("{before}{new}{}", &self.source[part.end..whole.end]);
            self.value(Operator::Pair, of, becomes);
        }
    }

    fn block(&mut self, block: &Block, is_unit: bool) {
        for stmt in &block.stmts {
            self.stmt(stmt);
        }
        for pair in block.stmts.windows(2) {
            if is_step(&pair[0]) && is_step(&pair[1]) {
                let [first, second] = [&pair[0], &pair[1]].map(|stmt| stmt.span().byte_range());
                let (start, end) = (first.start, second.end);
                let becomes = format!("{} {}", &self.source[second], &self.source[first]);
                self.steps(Operator::Swap, start..end, becomes);
            }
        }
        if let (true, Some(Stmt::Expr(last, None))) = (is_unit, block.stmts.last())
            && matches!(last, Expr::Call(_) | Expr::MethodCall(_))
        {
            self.steps(Operator::Call, last.span().byte_range(), String::new());
        }
    }

    /// Slips of a whole statement, and then of its parts.
    fn stmt(&mut self, stmt: &Stmt) {
        let range = stmt.span().byte_range();
        match stmt {
            Stmt::Expr(expr, Some(_)) => {
                let operator = match expr {
                    Expr::Call(call) if is_fence(&call.func) => Some(Operator::Fence),
                    Expr::Call(_) | Expr::MethodCall(_) | Expr::Try(_) => Some(Operator::Call),
                    Expr::Assign(_) => Some(Operator::Store),
                    Expr::Binary(binary) if is_assign(&binary.op) => Some(Operator::Store),
                    _ => None,
                };
                if let Some(operator) = operator {
                    self.steps(operator, range.clone(), String::new());
                }
                if let Expr::Try(tried) = expr {
                    let becomes = format!("let _ = {};", self.text(&tried.expr));
                    self.steps(Operator::Ignore, range, becomes);
                }
            }
            Stmt::Local(local) => {
                if let (Pat::Ident(name), Some(_)) = (&local.pat, &local.init)
                    && name.ident.to_string().starts_with('_')
                {
                    let was = self.source[range.clone()].to_owned();
                    let end = format!("drop({});", name.ident);
                    let switched = format!("{was} if {ON} {{ {end} }}");
                    let becomes = format!("{was} {end}");
                    let operator = Operator::Guard;
                    self.found.push(Site { operator, range, was, becomes, switched });
                }
            }
            _ => {}
        }
        visit::visit_stmt(self, stmt);
    }

    fn binary(&mut self, binary: &syn::ExprBinary) {
        let edge = match binary.op {
            BinOp::Lt(_) => "<=",
            BinOp::Le(_) => "<",
            BinOp::Gt(_) => ">=",
            BinOp::Ge(_) => ">",
            _ => "",
        };
        match binary.op {
            BinOp::Lt(_) | BinOp::Le(_) | BinOp::Gt(_) | BinOp::Ge(_) => {
                let (left, right) = (self.text(&binary.left), self.text(&binary.right));
                self.value(Operator::Edge, binary, format!("{left} {edge} {right}"));
            }
            BinOp::Eq(_) => self.value(Operator::Compare, binary, "true".into()),
            BinOp::Ne(_) => self.value(Operator::Compare, binary, "false".into()),
            BinOp::And(_) | BinOp::Or(_) => {
                let neutral = if matches!(binary.op, BinOp::And(_)) { "true" } else { "false" };
                for part in [&binary.left, &binary.right] {
                    if is_condition(part) {
                        self.value(Operator::Condition, part, neutral.into());
                    }
                }
            }
            BinOp::Add(_) | BinOp::Sub(_) if is_number(&binary.right) => {
                self.value(Operator::One, binary, self.text(&binary.left).to_owned());
            }
            _ => {}
        }
    }

    fn literal(&mut self, literal: &syn::ExprLit) {
        match &literal.lit {
            Lit::Int(int) => {
                let Ok(number) = int.base10_parse::<u128>() else { return };
                for other in [number.checked_add(1), number.checked_sub(1)].into_iter().flatten() {
                    self.value(Operator::Constant, literal, format!("{other}{}", int.suffix()));
                }
            }
            Lit::Bool(truth) => {
                self.value(Operator::Constant, literal, (!truth.value).to_string());
            }
            _ => {}
        }
    }

    fn range(&mut self, range: &syn::ExprRange) {
        let (Some(start), Some(end)) = (&range.start, &range.end) else { return };
        let limits = if matches!(range.limits, RangeLimits::HalfOpen(_)) { ".." } else { "..=" };
        let (start, end) = (self.text(start).to_owned(), self.text(end).to_owned());
        self.value(Operator::One, range, format!("({start}) + 1{limits}{end}"));
        let becomes = match range.limits {
            RangeLimits::HalfOpen(_) => format!("{start}..({end}) - 1"),
            RangeLimits::Closed(_) => format!("{start}..{end}"),
        };
        self.value(Operator::One, range, becomes);
    }

    /// A memory order, or a constant of a type that has others.
    fn path(&mut self, path: &Path) {
        let text = self.text(path);
        let Some((prefix, name)) = text.rsplit_once("::") else { return };
        if prefix.ends_with("Ordering") {
            if matches!(name, "Acquire" | "Release" | "AcqRel" | "SeqCst") {
                self.value(Operator::Weaken, path, format!("{prefix}::Relaxed"));
            }
        } else if let Some(other) = self.siblings.after(path) {
            self.value(Operator::Sibling, path, format!("{prefix}::{other}"));
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_block(&mut self, block: &'ast Block) {
        self.block(block, false);
    }

    fn visit_expr(&mut self, expr: &'ast Expr) {
        match expr {
            Expr::Binary(binary) if is_assign(&binary.op) => {
                return self.visit_expr(&binary.right);
            }
            Expr::Assign(assign) => return self.visit_expr(&assign.right),
            Expr::Binary(binary) => self.binary(binary),
            Expr::Lit(literal) => self.literal(literal),
            Expr::Range(range) => self.range(range),
            Expr::Unary(unary) if matches!(unary.op, UnOp::Not(_)) => {
                self.value(Operator::Not, unary, self.text(&unary.expr).to_owned());
            }
            Expr::If(choice) if choice.else_branch.is_none() && is_condition(&choice.cond) => {
                self.value(Operator::Skip, &choice.cond, "false".into());
            }
            Expr::MethodCall(call) => self.renamed(call, &call.method),
            Expr::Field(field) => {
                if let Member::Named(name) = &field.member {
                    self.renamed(field, name);
                }
            }
            Expr::Path(path) if path.qself.is_none() => self.path(&path.path),
            Expr::Call(call) => {
                if !is_fence(&call.func) {
                    call.args.iter().for_each(|argument| self.visit_expr(argument));
                }
                return;
            }
            // The place itself is needed, and not its value.
            Expr::Reference(reference) => {
                if let Expr::Field(field) = &*reference.expr {
                    return self.visit_expr(&field.base);
                }
            }
            Expr::ForLoop(each) => {
                self.visit_expr(&each.expr);
                return self.block(&each.body, true);
            }
            Expr::While(each) => {
                self.visit_expr(&each.cond);
                return self.block(&each.body, true);
            }
            _ => {}
        }
        visit::visit_expr(self, expr);
    }

    fn visit_pat(&mut self, pat: &'ast Pat) {
        if let Pat::Guard(guard) = pat {
            if is_condition(&guard.guard) {
                self.value(Operator::Condition, &guard.guard, "true".into());
            }
            self.visit_expr(&guard.guard);
        }
    }

    fn visit_expr_repeat(&mut self, repeat: &'ast ExprRepeat) {
        self.visit_expr(&repeat.expr);
    }

    // The switch has no value for the compiler.
    fn visit_item(&mut self, _: &'ast Item) {}
    fn visit_type(&mut self, _: &'ast Type) {}
    fn visit_expr_const(&mut self, _: &'ast ExprConst) {}
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
    fn visit_angle_bracketed_generic_arguments(&mut self, _: &'ast AngleBracketedGenericArguments) {
    }
}

/// Whether a statement is a step that could come earlier or later.
fn is_step(stmt: &Stmt) -> bool {
    let Stmt::Expr(expr, Some(_)) = stmt else { return false };
    match expr {
        Expr::Call(_) | Expr::MethodCall(_) | Expr::Try(_) | Expr::Assign(_) => true,
        Expr::Binary(binary) => is_assign(&binary.op),
        _ => false,
    }
}

/// Whether an operator also stores.
fn is_assign(op: &BinOp) -> bool {
    use BinOp as B;
    matches!(
        op,
        B::AddAssign(_)
            | B::SubAssign(_)
            | B::MulAssign(_)
            | B::DivAssign(_)
            | B::RemAssign(_)
            | B::BitAndAssign(_)
            | B::BitOrAssign(_)
            | B::BitXorAssign(_)
            | B::ShlAssign(_)
            | B::ShrAssign(_)
    )
}

fn is_fence(function: &Expr) -> bool {
    let Expr::Path(path) = function else { return false };
    path.path.segments.last().is_some_and(|last| last.ident == "fence")
}

fn is_number(expr: &Expr) -> bool {
    matches!(expr, Expr::Lit(literal) if matches!(literal.lit, Lit::Int(_)))
}

/// Whether a condition is a value: it binds no names.
fn is_condition(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => false,
        Expr::Binary(binary) => is_condition(&binary.left) && is_condition(&binary.right),
        _ => true,
    }
}
