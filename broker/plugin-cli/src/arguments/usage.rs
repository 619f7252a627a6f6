//! What the command says about itself.

/// How to use the command.
pub const USAGE: &str = "\
penstock plugin: write a plugin, try it, and bring it to a broker. Run it within the plugin's folder.

  penstock plugin new NAME --lang rust|javascript|python|c [--hook before-send|persist-after|webhook|connect|offline|route]
      Makes the folder NAME with a plugin that works, fixtures for it, and a README. Other hooks than before-send are for Rust.
  penstock plugin build
      Builds NAME.wasm and says what it is.
  penstock plugin check [--against URL]
      Says whether a broker would take the component: this version, or with --against also the one at URL.
  penstock plugin test
      Runs the component on fixtures/*.json under the limits of production.
  penstock plugin bench [--calls N]
      Says what a call and a message cost, alone and in batches, what a start costs, and how memory grows.
  penstock plugin dev [--bind ID] [--no-bind]
      Builds, tests and deploys, and does so again whenever a file of the folder changes, until it is interrupted.
  penstock plugin deploy [--bind ID] [--no-bind] [--canary PERCENT]
      Uploads the component, waits until the broker is ready for it, binds it as binding.toml says (or as ID, to all messages),
      and promotes it: for all channels, or with --canary for a share of them.
  penstock plugin promote | rollback | remove [NAME]
      Takes the open rollout to all channels; goes back to what ran before; forgets the plugin.
  penstock plugin release [NAME] [--digest DIGEST]
      Lets the versions run again that the broker quarantined because they kept failing: all, or this one.
  penstock plugin bind [ID] | unbind [ID]
      Makes or changes the binding of binding.toml; removes a binding.
  penstock plugin enable [ID] | disable [ID]
      Has a binding that follows channels go on where it stopped; stops it, without losing its place.
  penstock plugin captures [list | get ID | clear] [--bind ID] [--json]
      Lists the calls of the binding that failed, with what went wrong; shows the input of one, or forgets them.
  penstock plugin replay --capture ID [--bind ID] [--save NAME]
      Runs the input of a call that failed in the folder's component, and says whether the same comes of it. With --save it
      becomes the fixture NAME.
  penstock plugin replay --local --channel CHANNEL --type KIND --from SEQ --to SEQ [--as UID]
      Runs committed messages of a channel in the folder's component, as the member UID may read them. Nothing is sent.
  penstock plugin replay [ID] --channel CHANNEL --type KIND --from SEQ --to SEQ
      Has a webhook deliver committed messages once more.
  penstock plugin status [NAME] [--json]
      Says what runs, what is bound, and what it costs. Outside of a plugin's folder: of all plugins.
  penstock plugin logs [BINDING] [--follow]
      Shows what the plugin logged.
  penstock plugin dlq [list | replay ID... | drop ID...] [--bind ID] [--all] [--json]
      Lists the messages that the binding could not do, hands some or all of them out once more, or forgets them.
  penstock plugin keys [list | get KEY | set KEY VALUE | delete KEY...] [--plugin NAME] [--ttl-ms MS] [--all] [--json]
      Lists the keys of the plugin, or of the plugin NAME; shows, sets or deletes some, or deletes all of them.

check, test, bench, deploy and a replay here build first when the sources are newer than the component. Options:
  --dir DIR          the plugin's folder, if not this one
  --component FILE   of check, test, bench, deploy and a replay here: this component, as it is, instead of the folder's
  --server URL       the broker's HTTP API, http://127.0.0.1:5001 unless given
  --api-key KEY      its key; a node in development mode has none";
