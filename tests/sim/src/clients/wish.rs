//! What the users ask of the world around them.

use super::Purpose;
use penstock_core::admin::Ask;
use penstock_core::client::ClientFrame;

/// What clients want from the world.
#[derive(Clone, Debug)]
pub enum Wish {
    /// Open a connection to a node; it has this number.
    Open {
        /// Index of the node.
        node: usize,
        /// Number of the connection.
        connection: usize,
    },
    /// Write a frame.
    Frame {
        /// Number of the connection.
        connection: usize,
        /// The frame.
        frame: ClientFrame,
    },
    /// Close a connection.
    Close {
        /// Number of the connection.
        connection: usize,
    },
    /// Call the HTTP API of a node.
    Ask {
        /// Index of the node.
        node: usize,
        /// The call.
        ask: Ask,
        /// What its answer is for.
        purpose: Purpose,
    },
}
