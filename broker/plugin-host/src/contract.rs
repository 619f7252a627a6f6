//! The types of the contract, as they cross the border.

use std::sync::Arc;
use wasmtime::component::{ComponentType, Lift, Lower, TypedFunc};

/// Arena and index of a frame, shared with the call while it crosses.
pub(crate) type SharedFrame = (Arc<Vec<u8>>, Arc<Vec<u32>>);
pub(crate) type FlatFunction = TypedFunc<SharedFrame, ((Vec<u8>, Vec<u32>),)>;
pub(crate) type TypedFunction = TypedFunc<(Vec<Outgoing>,), (Vec<TypedVerdict>,)>;
pub(crate) type PersistFunction = TypedFunc<SharedFrame, (Result<Done, GuestFailure>,)>;
pub(crate) type OfflineFunction =
    TypedFunc<(Arc<Vec<u8>>, Arc<Vec<u32>>, Vec<String>), (Result<u32, GuestFailure>,)>;
pub(crate) type RenderFunction =
    TypedFunc<(Event, Arc<Vec<u8>>, Arc<Vec<u32>>, Vec<String>), (Result<Vec<GuestRequest>, GuestFailure>,)>;
pub(crate) type RouteFunction = TypedFunc<(GuestRequest,), (GuestResponse,)>;
pub(crate) type InitFunction = TypedFunc<(String,), (Result<(), String>,)>;

/// A message of `before-send-typed`.
#[derive(Clone, ComponentType, Lower)]
#[component(record)]
pub(crate) struct Outgoing {
    #[component(name = "channel-id")]
    pub(crate) channel_id: String,
    #[component(name = "channel-kind")]
    pub(crate) channel_kind: u8,
    pub(crate) sender: String,
    #[component(name = "client-message-number")]
    pub(crate) client_message_number: String,
    pub(crate) topic: String,
    #[component(name = "expire-seconds")]
    pub(crate) expire_seconds: u32,
    pub(crate) payload: Vec<u8>,
    pub(crate) attributes: Vec<(String, String)>,
}

#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct TypedRejection {
    pub(crate) code: u8,
    pub(crate) text: String,
}

#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct TypedRewrite {
    pub(crate) payload: Option<Vec<u8>>,
    pub(crate) topic: Option<String>,
    #[component(name = "expire-seconds")]
    pub(crate) expire_seconds: Option<u32>,
}

#[derive(ComponentType, Lift)]
#[component(variant)]
pub(crate) enum TypedVerdict {
    #[component(name = "allow")]
    Allow,
    #[component(name = "reject")]
    Reject(TypedRejection),
    #[component(name = "rewrite")]
    Rewrite(TypedRewrite),
}

#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct Done {
    pub(crate) messages: u32,
    pub(crate) changes: Vec<Change>,
}

#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct Change {
    pub(crate) message: u32,
    pub(crate) key: String,
    pub(crate) change: Operation,
}

#[derive(ComponentType, Lift)]
#[component(variant)]
pub(crate) enum Operation {
    #[component(name = "set")]
    Set(Value),
    #[component(name = "increment")]
    Increment(i64),
    #[component(name = "delete")]
    Delete,
}

#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct Value {
    pub(crate) value: Vec<u8>,
    #[component(name = "ttl-ms")]
    pub(crate) ttl_ms: u64,
}

/// What a webhook is about.
#[derive(Clone, Copy, ComponentType, Lower)]
#[component(enum)]
#[repr(u8)]
pub(crate) enum Event {
    #[component(name = "message-notify")]
    MessageNotify,
    #[component(name = "message-offline")]
    MessageOffline,
    #[component(name = "user-online-status")]
    UserOnlineStatus,
}

#[derive(Clone, ComponentType, Lift, Lower)]
#[component(record)]
pub(crate) struct GuestHeader {
    pub(crate) name: String,
    pub(crate) value: String,
}

#[derive(Clone, ComponentType, Lift, Lower)]
#[component(record)]
pub(crate) struct GuestRequest {
    pub(crate) method: String,
    pub(crate) url: String,
    pub(crate) headers: Vec<GuestHeader>,
    pub(crate) body: Vec<u8>,
}

#[derive(ComponentType, Lift, Lower)]
#[component(record)]
pub(crate) struct GuestResponse {
    pub(crate) status: u16,
    pub(crate) headers: Vec<GuestHeader>,
    pub(crate) body: Vec<u8>,
}

#[derive(Clone, Copy, ComponentType, Lift)]
#[component(enum)]
#[repr(u8)]
#[expect(dead_code, reason = "guests make the values")]
pub(crate) enum FailureKind {
    #[component(name = "retry")]
    Retry,
    #[component(name = "poison")]
    Poison,
    #[component(name = "busy")]
    Busy,
}

#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct GuestFailure {
    pub(crate) kind: FailureKind,
    #[component(name = "after-ms")]
    pub(crate) after_ms: u32,
    pub(crate) message: String,
}
