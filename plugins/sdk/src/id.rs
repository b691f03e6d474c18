//! Identities of instances: `hosts/hv1/domains/px-1`, `projects/p/zones/z/instances/n`.

/// Builds an id of collections and names, in their order.
pub fn format(parts: &[(&str, &str)]) -> String {
    let parts: Vec<String> = parts.iter().map(|(collection, name)| std::format!("{collection}/{name}")).collect();
    parts.join("/")
}

/// Takes an id apart: the names in these collections, or `None` when it is not of this form. No name is empty.
///
/// ```
/// use proxy_operator_sdk::id;
/// assert_eq!(id::parse("hosts/hv1/domains/px-1", ["hosts", "domains"]), Some(["hv1", "px-1"]));
/// assert_eq!(id::parse("hosts/hv1", ["hosts", "domains"]), None);
/// ```
pub fn parse<'a, const N: usize>(id: &'a str, collections: [&str; N]) -> Option<[&'a str; N]> {
    let mut segments = id.split('/');
    let mut names = [""; N];
    for (collection, name) in collections.iter().zip(&mut names) {
        if segments.next() != Some(*collection) {
            return None;
        }
        *name = segments.next().filter(|name| !name.is_empty())?;
    }
    segments.next().is_none().then_some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_built_is_parsed_and_nothing_else() {
        let id = format(&[("hosts", "hv1"), ("domains", "px-1")]);
        assert_eq!(id, "hosts/hv1/domains/px-1");
        assert_eq!(parse(&id, ["hosts", "domains"]), Some(["hv1", "px-1"]));
        for foreign in [
            "",
            "hosts",
            "hosts/",
            "hosts/hv1/domains",
            "hosts/hv1/domains/",
            "hosts//domains/a",
            "a/hv1/domains/b",
            "hosts/hv1/domains/a/b",
        ] {
            assert_eq!(parse(foreign, ["hosts", "domains"]), None, "{foreign}");
        }
    }
}
