//! Secrets. Responses never contain their values.

use sandling_engine::network::SecretInfo;
use sandling_network::Placement;
use sandling_network::policy::Entry;
use sandling_wire::{SecretView, SetSecret};

use super::IntoWire;
use super::network::BadNetwork;

pub(crate) fn hosts(request: &SetSecret) -> Result<Vec<Entry>, BadNetwork> {
    Ok(request.hosts.iter().map(|host| host.parse()).collect::<Result<_, _>>()?)
}

pub(crate) fn placements(request: &SetSecret) -> Result<Vec<Placement>, BadNetwork> {
    match &request.placements {
        Some(placements) => Ok(placements.iter().map(|placement| placement.parse()).collect::<Result<_, _>>()?),
        None => Ok(vec![Placement::default()]),
    }
}

impl IntoWire for SecretInfo {
    type Wire = SecretView;

    fn into_wire(self) -> SecretView {
        SecretView {
            name: self.name,
            hosts: self.hosts.iter().map(ToString::to_string).collect(),
            placements: self.placements.iter().map(ToString::to_string).collect(),
            created_at: self.created_at.to_string(),
        }
    }
}
