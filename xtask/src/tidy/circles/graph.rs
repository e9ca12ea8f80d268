//! Strongly connected components of a small graph.

/// The circles of a graph in which node `n` leads to `edges[n]`: components of two nodes or more,
/// each sorted.
pub(crate) fn circles(edges: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let reached: Vec<Vec<bool>> = (0..edges.len()).map(|from| reach(edges, from)).collect();
    let mut found: Vec<Vec<usize>> = Vec::new();
    for (node, from) in reached.iter().enumerate() {
        if found.iter().any(|circle| circle.contains(&node)) {
            continue;
        }
        let both = |other: &usize| from[*other] && reached[*other][node];
        let circle: Vec<usize> = (0..reached.len()).filter(both).collect();
        if circle.len() > 1 {
            found.push(circle);
        }
    }
    found
}

fn reach(edges: &[Vec<usize>], from: usize) -> Vec<bool> {
    let mut reached = vec![false; edges.len()];
    let mut open = vec![from];
    while let Some(node) = open.pop() {
        for &next in &edges[node] {
            if !std::mem::replace(&mut reached[next], true) {
                open.push(next);
            }
        }
    }
    reached
}
