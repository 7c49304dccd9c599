// Resolves names below localhost to this machine, as browsers and systemd do.
import dns from "node:dns";

const { lookup } = dns;

dns.lookup = (name, options, done) => {
  const local = name.endsWith(".localhost") ? "127.0.0.1" : name;
  return lookup(local, options, done);
};
