//go:build !faults

package vfs

func injected(fs FS) FS { return fs }
