// The small dialogs: new chat, new group, more members.

import { PERSON } from "./api.js";
import { byId } from "./view.js";

/** Connects the buttons that open dialogs with what they do. */
export function setUpDialogs(chats, view) {
  setUp("new-person", "person-dialog", async () => {
    const uid = byId("person-uid").value.trim();
    if (!uid) throw new Error("a user id is not blank");
    if (uid === chats.uid) throw new Error("that is you: a chat needs somebody else");
    view.open(chats.open(PERSON, uid));
    chats.askPresence();
  });
  setUp("new-group", "group-dialog", async () => {
    const id = byId("group-id").value.trim();
    if (!id) throw new Error("a group id is not blank");
    view.open(await chats.createGroup(id, uids(byId("group-members").value)));
    chats.askPresence();
  });
  setUp("add-members", "members-dialog", async () => {
    const members = uids(byId("more-members").value);
    if (members.length === 0) throw new Error("name at least one user");
    await chats.addMembers(chats.current, members);
    chats.askPresence();
  });
}

/** A dialog stays open with the reason when what it asks for is refused. */
function setUp(buttonId, dialogId, act) {
  const dialog = byId(dialogId);
  const [form, error] = [dialog.querySelector("form"), dialog.querySelector(".error")];
  byId(buttonId).addEventListener("click", () => {
    form.reset();
    error.textContent = "";
    dialog.showModal();
  });
  dialog.querySelector("[data-cancel]").addEventListener("click", () => dialog.close());
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await act();
      dialog.close();
      // A closed dialog gives the focus back to its button; whoever opened a conversation wants to write.
      if (chatIsOpen()) byId("text").focus();
    } catch (refused) {
      error.textContent = refused.message;
    }
  });
}

const chatIsOpen = () => !byId("open").hidden;

function uids(text) {
  return text.split(",").map((uid) => uid.trim()).filter(Boolean);
}
