//! Requests over HTTP that plugins answer.

use super::answer;
use crate::admin::{Answer, Failure, RouteAsk};
use crate::hooks::call::{Answer as Found, Call, Failed, HttpRequest, Returned, Work};
use crate::plugins::{self, Bound};
use crate::shard::Shard;
use crate::shard::plugins::Waits;
use crate::shard::turn::Turn;
use crate::types::Token;
use std::sync::Arc;

impl Shard {
    /// Has the plugin of a name answer, or says whether it would.
    pub(super) fn ask_route(&mut self, turn: &mut Turn<'_>, ask: Token, wanted: RouteAsk) {
        let found = match &wanted {
            RouteAsk::Public { plugin } => self.route_of(plugin, false),
            RouteAsk::Answer { plugin, with_key, .. } => self.route_of(plugin, *with_key),
        };
        match (found, wanted) {
            (Err(failure), _) => answer(turn, ask, Answer::Failed(failure)),
            (Ok(_), RouteAsk::Public { .. }) => answer(turn, ask, Answer::Done),
            (Ok(bound), RouteAsk::Answer { request, .. }) => self.call_route(turn, ask, &bound, request),
        }
    }

    /// The binding that answers. Who shows no key does not learn which plugins there are.
    fn route_of(&self, plugin: &str, with_key: bool) -> Result<Arc<Bound>, Failure> {
        let registry = self.plugins.registry().ok_or_else(|| {
            Failure::Unavailable("the node has just started and does not know its plugins yet".to_owned())
        })?;
        match registry.route(plugin) {
            Some(bound) if with_key || bound.binding.public => Ok(Arc::clone(bound)),
            _ if !with_key => Err(Failure::KeyNeeded),
            _ => Err(Failure::NotFound(format!(
                "no plugin answers here: bind `{}` to the hook `route` first (PUT /v1/bindings/{{id}})",
                plugin.escape_default()
            ))),
        }
    }

    fn call_route(&mut self, turn: &mut Turn<'_>, ask: Token, bound: &Bound, request: Box<HttpRequest>) {
        let Some(version) = bound.version_of_requests().cloned() else {
            let failure = Failure::Plugin(plugins::Failure::NotReady);
            return answer(turn, ask, Answer::Failed(failure));
        };
        let call = Call {
            version,
            channel: None,
            within: bound.binding.deadline,
            work: Work::Route {
                request,
                wall_ms: turn.now.wall_ms,
            },
        };
        self.call_plugin(turn, call, Waits::Route(ask));
    }
}

/// A plugin answered a request, or did not.
pub(in crate::shard) fn answer_route(turn: &mut Turn<'_>, ask: Token, returned: Returned) {
    let answered = match returned {
        Ok(Found::Response(response)) => Answer::Response(response),
        Ok(Found::Verdicts(_) | Found::Done { .. } | Found::Requests(_) | Found::Decision(_))
        | Err(Failed::Poison | Failed::Undelivered { .. } | Failed::Later { .. } | Failed::Gone) => {
            Answer::Failed(Failure::Plugin(plugins::Failure::BadOutput))
        }
        Err(Failed::Call(failure)) => Answer::Failed(Failure::Plugin(failure)),
        Err(Failed::Retry { .. } | Failed::Busy { .. }) => {
            Answer::Failed(Failure::Plugin(plugins::Failure::Busy))
        }
    };
    answer(turn, ask, answered);
}
