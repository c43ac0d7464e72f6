//go:build trivium_nosync

package wal

import "github.com/trivium-mq/trivium/storage/vfs"

// syncFile does nothing: in this build the log lies about durability, and the
// crash tests have to notice.
func syncFile(vfs.File) error { return nil }
