// Package filewatch tells that files may have changed.
//
// # How it notices
//
// It watches the folders that the files are in, not the files: an editor replaces a file, and a Kubernetes ConfigMap or Secret volume
// changes by the swap of a symbolic link, ..data, beside links that stay as they are. Neither is an event of the file itself. Whatever
// happens in a folder counts. A link that leads to another folder, a network file system or a full event queue may show nothing at all, so
// that it also says so from time to time without a reason.
//
// It never says what has changed: the caller reads the files and compares.
//
// # How often it tells
//
// Several events in a row, as of a file that is being written, are told once, when nothing has happened for Settle.
package filewatch
