//! The model in words, for `steadfast host generate --explain`.

use std::fmt::Write as _;

use super::words::{Effect, Function, Keys, Model, Role, When};

impl Model {
    #[must_use]
    pub fn explain(&self) -> String {
        let mut out = String::new();
        for (index, resource) in self.resources.iter().enumerate() {
            let _ = writeln!(out, "resource {}", resource.path());
            if let Some(identity) = resource.identity {
                let _ = writeln!(
                    out,
                    "  identity     {} says it, {} makes the object of it",
                    self.functions[identity.of].name, self.functions[identity.again].name
                );
            }
            for (creator, parent) in &resource.creators {
                let parent = parent.map_or(String::new(), |p| {
                    format!(", after its parent {}", self.resources[p].name)
                });
                let _ = writeln!(
                    out,
                    "  made by      {}{parent}, with the arguments it was made with",
                    self.functions[*creator].name
                );
            }
            for (state, path) in resource.states.iter().zip(&resource.paths) {
                let path: Vec<_> = path.iter().map(|f| self.call(*f)).collect();
                let path = if path.is_empty() {
                    "nothing to replay".into()
                } else {
                    format!("replay {}", path.join(", then "))
                };
                let _ = writeln!(out, "  state {state:<10} {path}");
            }
            for (function, _, field) in &resource.restore {
                let _ = writeln!(
                    out,
                    "  field {:<10} given back by {}",
                    resource.fields[*field], self.functions[*function].name
                );
            }
            if resource.children_end {
                let _ = writeln!(out, "  its end          ends what was made from it");
            }
            if resource.children_stay {
                let _ = writeln!(
                    out,
                    "  its end          leaves what was made from it: it is made again for that, and given back again"
                );
            }
            if let Some(name) = &resource.named {
                let _ = writeln!(
                    out,
                    "  name             {name}: its data outlive the objects that were made with it"
                );
            }
            if let Some(function) = resource.data {
                let _ = writeln!(
                    out,
                    "  data             kept outside with a checksum, written back by {}",
                    self.functions[function].name
                );
            }
            if let Some(key) = &resource.key {
                let _ = writeln!(
                    out,
                    "  stands for       the key of its parent that {key} names"
                );
            }
            if let Some(function) = resource.keys {
                let _ = writeln!(
                    out,
                    "  keys             kept outside with checksums, each set again by {} when somebody asks for it",
                    self.functions[function].name
                );
            }
            for function in &self.functions {
                if function.role == (Role::Method { resource: index }) {
                    let what = match &function.effect {
                        Effect::None => "changes nothing".to_owned(),
                        Effect::State { to, when, .. } => {
                            format!("leads to {}{}", resource.states[*to], condition(*when))
                        }
                        Effect::Field {
                            field, add, when, ..
                        } => {
                            format!(
                                "{} {}{}",
                                if *add { "adds to" } else { "sets" },
                                resource.fields[*field],
                                condition(*when)
                            )
                        }
                        Effect::Write { when, .. } => format!("writes data{}", condition(*when)),
                        Effect::Truncate { when, .. } => format!("cuts data{}", condition(*when)),
                        Effect::Put { keys, when, .. } => {
                            format!("sets {}{}", which(*keys), condition(*when))
                        }
                        Effect::Delete { keys, when } => {
                            format!("takes {} away{}", which(*keys), condition(*when))
                        }
                        Effect::Move { parent, when } => format!(
                            "moves it to {}{}",
                            function.params[*parent].name,
                            condition(*when)
                        ),
                        Effect::Remove { .. } | Effect::All { .. } => "concerns names".to_owned(),
                    };
                    let first = if function.children {
                        "; what was made from the object comes back first"
                    } else {
                        ""
                    };
                    let waits = self.waits(function);
                    let _ = writeln!(
                        out,
                        "  call             {} {what}{first}{waits}",
                        function.name
                    );
                }
            }
        }
        for function in self
            .functions
            .iter()
            .filter(|f| matches!(f.role, Role::Free | Role::Terminal { .. }))
        {
            let gives = match function.gives {
                Some(of) => format!("; it may give another {}", self.resources[of].name),
                None => String::new(),
            };
            let what = match (&function.role, &function.effect) {
                (Role::Terminal { .. }, Effect::Put { when, .. }) => format!(
                    "ends the object that it is given, and sets the key that this stood for{}",
                    condition(*when)
                ),
                (Role::Terminal { .. }, Effect::Delete { when, .. }) => format!(
                    "ends the object that it is given, and takes the key away that this stood for{}",
                    condition(*when)
                ),
                (Role::Terminal { .. }, _) if function.children => {
                    "ends the object that it is given; what was made from the object comes back first"
                        .to_owned()
                }
                (Role::Terminal { .. }, _) => "ends the object that it is given".to_owned(),
                (_, Effect::Remove { .. }) => "takes a name and its data away".to_owned(),
                (_, Effect::All { .. }) => "looks at all of them, so they come back first".to_owned(),
                _ => "touches no object".to_owned(),
            };
            let _ = writeln!(out, "function {} {what}{gives}", function.path());
        }
        out
    }

    fn waits(&self, function: &Function) -> String {
        let Some(wait) = &function.wait else {
            return String::new();
        };
        let wakers = wait.woken_by.iter();
        let wakers: Vec<_> = wakers.map(|f| self.functions[*f].name.as_str()).collect();
        format!(
            "; waits{}, woken by {}",
            condition(wait.until).replace(" if", " until"),
            wakers.join(", ")
        )
    }

    fn call(&self, function: usize) -> String {
        let function = &self.functions[function];
        let Effect::State { remember, .. } = &function.effect else {
            return function.name.clone();
        };
        let names: Vec<_> = remember
            .iter()
            .map(|p| function.params[*p].name.as_str())
            .collect();
        if names.is_empty() {
            function.name.clone()
        } else {
            format!("{} with the remembered {}", function.name, names.join(", "))
        }
    }
}

fn which(keys: Keys) -> &'static str {
    match keys {
        Keys::One(_) => "a key",
        Keys::Each(_) => "a list of keys",
        Keys::Own => "the key that it stands for",
    }
}

fn condition(when: When) -> &'static str {
    match when {
        When::Always => "",
        When::Ok => " if it returns ok",
        When::True => " if it returns true",
        When::Some => " if it returns some",
    }
}
