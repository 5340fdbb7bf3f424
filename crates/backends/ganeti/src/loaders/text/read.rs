//! Text as a cluster.

use std::collections::BTreeMap;

use stagger_core::model::UnitId;

use crate::model::{
    AllocPolicy, GanetiCluster, GanetiNode, GroupIx, Instance, Ipolicy, MOST, NodeGroup, NodeIx, Resources,
    Spec, Status, Template,
};

/// What is wrong in a file, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}{}: {why}", .field.map(|field| format!(", {field}")).unwrap_or_default())]
pub struct TextError {
    /// Which line, from 1; that after the last where something is missing at the end.
    pub line: usize,
    /// Which field of it.
    pub field: Option<&'static str>,
    /// What is wrong with it.
    pub why: String,
}

const SECTIONS: [&str; 4] = ["groups", "nodes", "instances", "tags of the cluster"];

/// The cluster that such a text describes.
///
/// # Errors
/// The first line that cannot be read, and why: too few sections or fields, a word or number that is none, a
/// name that is given twice or refers to nothing.
pub fn read(text: &str) -> Result<GanetiCluster, TextError> {
    let sections = sections(text);
    if sections.len() < SECTIONS.len() {
        return Err(TextError {
            line: text.lines().count() + 1,
            field: None,
            why: format!(
                "the text ends before the section of {}; there are {}, each after an empty line: {}",
                SECTIONS[sections.len()],
                SECTIONS.len(),
                SECTIONS.join(", ")
            ),
        });
    }
    let mut cluster = GanetiCluster::default();
    let mut groups = Names::new("group");
    let mut by_uuid = BTreeMap::new();
    for line in &sections[0] {
        let group = group(line)?;
        let ix = groups.add(&group.name, line)?;
        if by_uuid.insert(group.uuid.clone(), GroupIx(ix)).is_some() {
            return Err(line.invalid("UUID", format!("two groups have the UUID {:?}", group.uuid)));
        }
        cluster.groups.push(group);
    }
    let mut nodes = Names::new("node");
    for line in &sections[1] {
        let node = node(line, &by_uuid)?;
        nodes.add(&node.name, line)?;
        cluster.nodes.push(node);
    }
    for line in &sections[2] {
        cluster.instances.push(instance(line, &nodes)?);
    }
    cluster.tags = sections[3].iter().map(|line| line.text.to_owned()).collect();
    for line in sections.get(4).into_iter().flatten() {
        let (owner, policy) = ipolicy(line)?;
        let of = match owner {
            "" => &mut cluster.ipolicy,
            name => {
                let ix = groups.find(name).ok_or_else(|| {
                    line.invalid(
                        "owner",
                        format!("there is no group {name:?}; empty stands for the cluster"),
                    )
                })?;
                &mut cluster.groups[ix as usize].ipolicy
            }
        };
        if of.replace(policy).is_some() {
            return Err(line.invalid("owner", format!("{owner:?} has two policies")));
        }
    }
    Ok(cluster)
}

/// One line with its number and its fields.
#[derive(Debug)]
struct Line<'a> {
    number: usize,
    text: &'a str,
    fields: Vec<&'a str>,
}

fn sections(text: &str) -> Vec<Vec<Line<'_>>> {
    let mut sections = vec![Vec::new()];
    for (at, text) in text.lines().enumerate() {
        if text.is_empty() {
            sections.push(Vec::new());
        } else if let Some(section) = sections.last_mut() {
            section.push(Line {
                number: at + 1,
                text,
                fields: text.split('|').collect(),
            });
        }
    }
    sections
}

impl<'a> Line<'a> {
    fn invalid(&self, field: &'static str, why: impl Into<String>) -> TextError {
        TextError {
            line: self.number,
            field: Some(field),
            why: why.into(),
        }
    }

    /// Whether it has so many fields.
    fn at_least(&self, what: &str, fields: usize) -> Result<(), TextError> {
        if self.fields.len() >= fields {
            return Ok(());
        }
        Err(TextError {
            line: self.number,
            field: None,
            why: format!(
                "{what} has {fields} fields or more, and this has {}",
                self.fields.len()
            ),
        })
    }

    fn field(&self, at: usize) -> &'a str {
        self.fields.get(at).copied().unwrap_or("")
    }

    /// A field that may be missing.
    fn optional(&self, at: usize, default: &'static str) -> &'a str {
        self.fields.get(at).copied().unwrap_or(default)
    }

    /// A name: of a unit, so that it can be one.
    fn name(&self, at: usize, field: &'static str) -> Result<String, TextError> {
        let name = self.field(at);
        UnitId::new(name)
            .map_err(|error| self.invalid(field, format!("{name:?} is no name: {}", error.why)))?;
        Ok(name.to_owned())
    }

    fn list(&self, at: usize) -> Vec<String> {
        let field = self.field(at);
        field
            .split(',')
            .filter(|item| !item.is_empty())
            .map(str::to_owned)
            .collect()
    }

    fn signed(&self, field: &'static str, text: &str) -> Result<i64, TextError> {
        let number =
            parse_integer(text).ok_or_else(|| self.invalid(field, format!("{text:?} is not a number")))?;
        if number.unsigned_abs() > MOST {
            return Err(self.invalid(
                field,
                format!("{text} is more than any node has, which is at most {MOST}"),
            ));
        }
        Ok(number)
    }

    fn number(&self, field: &'static str, text: &str) -> Result<u64, TextError> {
        let number = self.signed(field, text)?;
        u64::try_from(number).map_err(|_| self.invalid(field, format!("{number} is below 0")))
    }

    fn ratio(&self, field: &'static str, text: &str) -> Result<f64, TextError> {
        match text.parse::<f64>() {
            Ok(ratio) if ratio.is_finite() && ratio >= 0.0 => Ok(ratio),
            Ok(_) | Err(_) => Err(self.invalid(field, format!("{text:?} is not a number of 0 or more"))),
        }
    }

    fn parse_flag(&self, field: &'static str, text: &str) -> Result<bool, TextError> {
        match text {
            "Y" => Ok(true),
            "N" => Ok(false),
            other => Err(self.invalid(field, format!("{other:?} is neither Y nor N"))),
        }
    }
}

/// A whole number; htools write some with a fraction.
fn parse_integer(text: &str) -> Option<i64> {
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let number: f64 = text.parse().ok()?;
    // What is larger than any is refused as such.
    number.is_finite().then_some(number.floor() as i64)
}

/// Names that may stand once each.
struct Names {
    what: &'static str,
    by: BTreeMap<String, u32>,
}

impl Names {
    fn new(what: &'static str) -> Self {
        Self {
            what,
            by: BTreeMap::new(),
        }
    }

    fn add(&mut self, name: &str, line: &Line<'_>) -> Result<u32, TextError> {
        let next = self.by.len() as u32;
        if self.by.insert(name.to_owned(), next).is_some() {
            return Err(line.invalid("name", format!("two {}s are called {name:?}", self.what)));
        }
        Ok(next)
    }

    fn find(&self, name: &str) -> Option<u32> {
        self.by.get(name).copied()
    }
}

fn group(line: &Line<'_>) -> Result<NodeGroup, TextError> {
    line.at_least("a group", 4)?;
    let word = line.field(2);
    let alloc_policy = AllocPolicy::parse(word).ok_or_else(|| {
        line.invalid(
            "allocation policy",
            format!("{word:?} is none of preferred, last_resort, unallocable"),
        )
    })?;
    if line.field(1).is_empty() {
        return Err(line.invalid("UUID", "it is empty"));
    }
    Ok(NodeGroup {
        name: line.name(0, "name")?,
        uuid: line.field(1).to_owned(),
        alloc_policy,
        tags: line.list(3),
        networks: line.list(4),
        ipolicy: None,
    })
}

fn node(line: &Line<'_>, groups: &BTreeMap<String, GroupIx>) -> Result<GanetiNode, TextError> {
    line.at_least("a node", 9)?;
    let name = line.name(0, "name")?;
    let (offline, master) = match line.field(7) {
        "Y" => (true, false),
        "M" => (false, true),
        "N" => (false, false),
        other => return Err(line.invalid("flag", format!("{other:?} is none of Y (offline), M (master), N"))),
    };
    let uuid = line.field(8);
    let group = *groups
        .get(uuid)
        .ok_or_else(|| line.invalid("group", format!("there is no group with the UUID {uuid:?}")))?;
    let resources = resources(line)?;
    Ok(GanetiNode {
        name,
        resources,
        offline,
        drained: false,
        vm_capable: true,
        master,
        group,
        tags: line.list(10),
        exclusive_storage: line.parse_flag("exclusive storage", line.optional(11, "N"))?,
    })
}

fn resources(line: &Line<'_>) -> Result<Option<Resources>, TextError> {
    let spindles = line.optional(9, "1");
    let free = line.optional(12, "0");
    let own = line.optional(13, "1");
    if (1..=6).any(|at| line.field(at) == "?") || [spindles, free, own].contains(&"?") {
        return Ok(None);
    }
    Ok(Some(Resources {
        memory: line.number("memory", line.field(1))?,
        memory_own: line.number("memory of the node", line.field(2))?,
        memory_free: line.signed("free memory", line.field(3))?,
        disk: line.number("disk", line.field(4))?,
        disk_free: line.signed("free disk", line.field(5))?,
        cpus: line.number("processors", line.field(6))?,
        spindles: line.number("spindles", spindles)?,
        spindles_free: line.signed("free spindles", free)?,
        cpus_own: line.number("processors of the node", own)?,
        cpu_speed: line.ratio("speed of processors", line.optional(14, "1.0"))?,
    }))
}

fn instance(line: &Line<'_>, nodes: &Names) -> Result<Instance, TextError> {
    line.at_least("an instance", 10)?;
    let node = |at: usize, field: &'static str| {
        let name = line.field(at);
        nodes
            .find(name)
            .map(NodeIx)
            .ok_or_else(|| line.invalid(field, format!("there is no node {name:?}")))
    };
    let word = line.field(4);
    let status = Status::of_word(word).ok_or_else(|| {
        let words: Vec<_> = Status::ALL.iter().map(|status| status.word()).collect();
        line.invalid("status", format!("{word:?} is none of {}", words.join(", ")))
    })?;
    let template = template(line, line.field(8))?;
    let primary = node(6, "primary node")?;
    let secondary = match line.field(7) {
        "" => None,
        _ => Some(node(7, "secondary node")?),
    };
    if secondary == Some(primary) && template == Template::Drbd {
        return Err(line.invalid(
            "secondary node",
            format!("{:?} is the primary node too", line.field(7)),
        ));
    }
    let spindles = match line.optional(11, "-") {
        "-" => None,
        text => Some(line.number("spindles of disks", text)?),
    };
    let memory = line.number("memory", line.field(1))?;
    Ok(Instance {
        name: line.name(0, "name")?,
        memory,
        maxmem: memory,
        disk: line.number("disk", line.field(2))?,
        vcpus: line.number("virtual processors", line.field(3))?,
        status,
        auto_balance: line.parse_flag("auto balance", line.field(5))?,
        primary,
        secondary,
        template,
        tags: line.list(9),
        spindle_use: line.number("spindle use", line.optional(10, "1"))?,
        disk_spindles: spindles,
        forthcoming: line.parse_flag("forthcoming", line.optional(12, "N"))?,
    })
}

fn template(line: &Line<'_>, word: &str) -> Result<Template, TextError> {
    Template::of_word(word).ok_or_else(|| {
        let words: Vec<_> = Template::ALL.iter().map(|template| template.word()).collect();
        line.invalid(
            "disk template",
            format!("{word:?} is none of {}", words.join(", ")),
        )
    })
}

fn ipolicy<'a>(line: &Line<'a>) -> Result<(&'a str, Ipolicy), TextError> {
    line.at_least("a policy", 6)?;
    let standard = spec(line, "standard", line.field(1))?;
    let bounds = line
        .field(2)
        .split(';')
        .map(|text| spec(line, "ranges", text))
        .collect::<Result<Vec<_>, _>>()?;
    if bounds.len() % 2 != 0 {
        return Err(line.invalid(
            "ranges",
            "a range has a least and a most, and one of them is missing",
        ));
    }
    let templates = line
        .field(3)
        .split(',')
        .filter(|word| !word.is_empty())
        .map(|word| template(line, word))
        .collect::<Result<Vec<_>, _>>()?;
    let policy = Ipolicy {
        standard,
        ranges: bounds.chunks(2).map(|pair| (pair[0], pair[1])).collect(),
        templates,
        vcpu_ratio: line.ratio("ratio of virtual processors", line.field(4))?,
        spindle_ratio: line.ratio("ratio of spindles", line.field(5))?,
    };
    Ok((line.field(0), policy))
}

fn spec(line: &Line<'_>, field: &'static str, text: &str) -> Result<Spec, TextError> {
    let sizes = text
        .split(',')
        // A bound may be as large as one likes: it is compared, and never added up.
        .map(|size| match size.parse() {
            Ok(size) => Ok(size),
            Err(_) => line.number(field, size),
        })
        .collect::<Result<Vec<_>, _>>()?;
    sizes.try_into().map_err(|sizes: Vec<u64>| {
        line.invalid(
            field,
            format!("6 sizes are wanted, and {text:?} has {}", sizes.len()),
        )
    })
}
