//go:build !trivium_nosync

package wal

import "github.com/trivium-mq/trivium/storage/vfs"

// syncFile makes what was written to f durable.
func syncFile(f vfs.File) error { return f.Sync() }
