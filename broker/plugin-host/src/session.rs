//! The types of `session`, as they cross the border, and what they mean.

use crate::typed::denial_code;
use penstock_core::hooks::gates::{self, Decision, Request};
use penstock_core::message::{REFUSAL_BYTES_MAX, Refusal};
use penstock_core::types::{DeviceLevel, Uid};
use std::sync::Arc;
use wasmtime::component::{ComponentType, Lift, Lower, TypedFunc};

pub(crate) type ConnectFunction = TypedFunc<(ConnectRequest,), (Result<Acceptance, Denial>,)>;

/// Who wants to connect.
#[derive(Clone, ComponentType, Lower)]
#[component(record)]
pub(crate) struct ConnectRequest {
    uid: String,
    token: String,
    #[component(name = "device-id")]
    device_id: String,
    #[component(name = "device-flag")]
    device_flag: u8,
    address: String,
}

/// An accepted session.
#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct Acceptance {
    uid: String,
    level: u8,
    attributes: Vec<(String, String)>,
}

/// Why a session is refused.
#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct Denial {
    code: u8,
    text: String,
}

/// A request as a record.
pub(crate) fn request(request: &Request) -> ConnectRequest {
    ConnectRequest {
        uid: request.uid.as_str().to_owned(),
        token: request.token.0.to_string(),
        device_id: request.device_id.to_string(),
        device_flag: request.flag.0,
        address: request.address.to_string(),
    }
}

/// What a guest decided.
///
/// # Errors
/// Why it is no decision.
pub(crate) fn decision(found: Result<Acceptance, Denial>) -> Result<Decision, String> {
    let accepted = match found {
        Ok(accepted) => accepted,
        Err(denial) if denial.text.len() > REFUSAL_BYTES_MAX => {
            return Err(format!(
                "its text has {} bytes, more than {REFUSAL_BYTES_MAX}",
                denial.text.len()
            ));
        }
        Err(denial) => {
            return Ok(Err(Refusal {
                reason: denial_code(denial.code),
                text: (!denial.text.is_empty()).then(|| Arc::from(denial.text)),
            }));
        }
    };
    let level = match accepted.level {
        0 => DeviceLevel::Slave,
        1 => DeviceLevel::Master,
        other => return Err(format!("device level {other}: 0 is a slave, 1 a master")),
    };
    let attribute = |(name, value): (String, String)| (Arc::from(name), Arc::from(value));
    let acceptance = gates::Acceptance {
        uid: Uid::new(&accepted.uid),
        level,
        attributes: accepted.attributes.into_iter().map(attribute).collect(),
    };
    acceptance.flaw().map_or(Ok(Ok(acceptance)), Err)
}
