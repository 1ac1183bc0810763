// Package certs gives listeners and callers their TLS settings from PEM files, and reads the files again when they change.
//
// # How a change is noticed
//
// By their contents, not by their times or by a watch of the folder: a Kubernetes Secret changes by the swap of a symbolic link two folders
// up, which neither shows at the file nor reaches a watch on it. Nothing runs for it. Whoever asks a Source for its settings, at most
// once in Every, reads the files first; all others meanwhile get what there is. So a gateway that has been idle for a week shows the
// new certificate to the first client, and a scrape of the metrics looks, too.
//
// # What a change does
//
//   - The new files are good: the settings made of them hold for every connection from now on. Those that are open go on.
//   - They cannot be read, do not fit each other (a certificate was written and its key not yet), or have run out while the old ones have
//     not: the old ones hold, one line in the log says why, and stockgate_tls_files_unusable is 1 until they are good.
//
// Settings are made anew as a whole, never changed or cloned. The keys of session tickets are part of them, so that a session that was
// begun under an authority that is no longer trusted cannot be resumed.
//
// # What a server asks
//
// TLS 1.2 at least, HTTP/1.1 alone (ALPN), and a client certificate if there are authorities to check it against. A caller always
// verifies the server's certificate and its name; there is no switch.
package certs
