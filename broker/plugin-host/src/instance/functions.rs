//! The functions of a component that are called: where they stand in it, and as an instance has them.

use crate::component::Hook;
use crate::contract::{
    FlatFunction, InitFunction, OfflineFunction, PersistFunction, RenderFunction, RouteFunction,
    TypedFunction,
};
use crate::imports::{State, interface};
use crate::refused::Refused;
use crate::session::ConnectFunction;
use wasmtime::Store;
use wasmtime::component::{
    Component, ComponentExportIndex, ComponentNamedList, Instance, Lift, Lower, TypedFunc,
};

/// Interface and name of what is called once for each instance.
const INIT: (&str, &str) = ("lifecycle", "init");

/// Where the functions stand in a component.
pub(super) struct Exports {
    init: Option<ComponentExportIndex>,
    flat: Option<ComponentExportIndex>,
    typed: Option<ComponentExportIndex>,
    persist: Option<ComponentExportIndex>,
    render: Option<ComponentExportIndex>,
    connect: Option<ComponentExportIndex>,
    route: Option<ComponentExportIndex>,
    offline: Option<ComponentExportIndex>,
}

/// The functions of an instance: one for each hook that it answers.
pub(super) struct Functions {
    pub(super) flat: Option<FlatFunction>,
    pub(super) typed: Option<TypedFunction>,
    pub(super) persist: Option<PersistFunction>,
    pub(super) render: Option<RenderFunction>,
    pub(super) connect: Option<ConnectFunction>,
    pub(super) route: Option<RouteFunction>,
    pub(super) offline: Option<OfflineFunction>,
}

impl Exports {
    pub(super) fn of(component: &Component) -> Exports {
        let function = |of: &str, name: &str| {
            let (_, instance) = component.get_export(None, interface(of))?;
            component.get_export_index(Some(&instance), name)
        };
        let hook = |hook: Hook, name: &str| function(hook.interface(), name);
        Exports {
            init: function(INIT.0, INIT.1),
            flat: hook(Hook::BeforeSend, "handle"),
            typed: hook(Hook::BeforeSendTyped, "handle"),
            persist: hook(Hook::PersistAfter, "handle"),
            render: hook(Hook::Webhook, "render"),
            connect: hook(Hook::Connect, "connect"),
            route: hook(Hook::Route, "handle"),
            offline: hook(Hook::Offline, "handle"),
        }
    }

    /// Whether it judges messages before they are stored.
    pub(super) fn filters(&self) -> bool {
        self.flat.is_some() || self.typed.is_some()
    }

    /// The functions of an instance, and the one that begins it.
    ///
    /// # Errors
    /// When one is not of the type that the contract has.
    pub(super) fn functions(
        &self,
        store: &mut Store<State>,
        instance: &Instance,
    ) -> Result<(Functions, Option<InitFunction>), Refused> {
        let init = typed(store, instance, self.init.as_ref(), INIT.0)?;
        let functions = Functions {
            flat: typed(store, instance, self.flat.as_ref(), Hook::BeforeSend.interface())?,
            typed: typed(
                store,
                instance,
                self.typed.as_ref(),
                Hook::BeforeSendTyped.interface(),
            )?,
            persist: typed(
                store,
                instance,
                self.persist.as_ref(),
                Hook::PersistAfter.interface(),
            )?,
            render: typed(store, instance, self.render.as_ref(), Hook::Webhook.interface())?,
            connect: typed(store, instance, self.connect.as_ref(), Hook::Connect.interface())?,
            route: typed(store, instance, self.route.as_ref(), Hook::Route.interface())?,
            offline: typed(store, instance, self.offline.as_ref(), Hook::Offline.interface())?,
        };
        Ok((functions, init))
    }
}

fn typed<Parameters, Results>(
    store: &mut Store<State>,
    instance: &Instance,
    index: Option<&ComponentExportIndex>,
    export: &str,
) -> Result<Option<TypedFunc<Parameters, Results>>, Refused>
where
    Parameters: ComponentNamedList + Lower,
    Results: ComponentNamedList + Lift,
{
    let Some(index) = index else {
        return Ok(None);
    };
    instance
        .get_typed_func(&mut *store, index)
        .map(Some)
        .map_err(|error| Refused::Export {
            export: export.to_owned(),
            reason: format!("not of the type that the contract has: {error:#}"),
        })
}
