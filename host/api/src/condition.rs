//! Conditions, by the conventions of the Kubernetes API.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not.
    False,
    /// It is not known.
    Unknown,
}

/// One aspect of an object's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Which aspect, in CamelCase.
    #[serde(rename = "type")]
    pub type_: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// Why, in one CamelCase word.
    pub reason: String,
    /// The same for people, and what to do about it.
    pub message: String,
    /// When the status last changed, RFC 3339 in UTC.
    pub last_transition_time: String,
    /// The generation of the object for which this was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

// === impl ConditionStatus ===

impl ConditionStatus {
    /// As the API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// Sets a condition in a list: the time of transition is kept while the status stays the same.
pub fn set(conditions: &mut Vec<Condition>, mut new: Condition) {
    match conditions.iter_mut().find(|old| old.type_ == new.type_) {
        Some(old) => {
            if old.status == new.status {
                new.last_transition_time.clone_from(&old.last_transition_time);
            }
            *old = new;
        }
        None => conditions.push(new),
    }
}

/// The condition of a type.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(status: ConditionStatus, message: &str, time: &str) -> Condition {
        Condition {
            type_: "Ready".into(),
            status,
            reason: "R".into(),
            message: message.into(),
            last_transition_time: time.into(),
            observed_generation: None,
        }
    }

    #[test]
    fn the_time_of_transition_moves_with_the_status_alone() {
        let mut all = vec![];
        set(&mut all, condition(ConditionStatus::False, "a", "1"));
        set(&mut all, condition(ConditionStatus::False, "b", "2"));
        assert_eq!((all[0].message.as_str(), all[0].last_transition_time.as_str()), ("b", "1"));
        set(&mut all, condition(ConditionStatus::True, "c", "3"));
        assert_eq!(all[0].last_transition_time, "3");
        assert_eq!(all.len(), 1);
    }
}
