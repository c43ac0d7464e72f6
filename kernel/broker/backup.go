package broker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/placement"
	"github.com/trivium-mq/trivium/metasvc"
	"github.com/trivium-mq/trivium/metasvc/raftgroup"
	"github.com/trivium-mq/trivium/storage/vfs"
)

const (
	// backupChunk is read at once, and backupSync is written before it is synced: all
	// at the end would hold up the syncs of the log.
	backupChunk = 256 << 10
	backupSync  = 4 << 20
	// backupBarrier bounds the wait for a checkpoint.
	backupBarrier = 5 * time.Minute
)

// backup is one on its way.
type backup struct {
	ctx      context.Context
	node     *Node
	fs       vfs.FS
	order    kernel.BackupOrder
	manifest backupManifest
	report   kernel.BackupReport
	read     int64 // bytes, for the pace
	dirs     map[string]bool
}

// Backup writes a copy of all that this node's replicas hold into a directory, of which
// Restore makes a data directory. What was confirmed before the call is in it, and some of what came
// later; clients are served meanwhile. First come the messages and then the catalog:
// one that is newer than the data is brought in line with it at the start. Errors:
// CodePrecondition (the directory is not new or empty), CodeInvalid, CodeLimit
// (another one is under way), CodePressure, CodeUnavailable. What has been written
// is removed then.
func (n *Node) Backup(ctx context.Context, order kernel.BackupOrder) (kernel.BackupReport, error) {
	if !n.backing.TryLock() {
		return kernel.BackupReport{}, kernel.Errorf(kernel.CodeLimit, "", "", "another backup of this node is under way")
	}
	defer n.backing.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(n.ctx, cancel)()
	b := &backup{ctx: ctx, node: n, fs: n.cfg.FS, order: order, dirs: map[string]bool{}}
	if b.fs == nil {
		b.fs = vfs.OS()
	}
	if err := b.claim(); err != nil {
		return b.report, err
	}
	n.log.Info().Str("to", order.Dir).Msg("a backup begins")
	err := b.run()
	if err != nil {
		err = errors.Join(backupError(err), clearDir(b.fs, order.Dir))
		n.log.Error().Err(err).Str("to", order.Dir).Msg("the backup has failed")
		return b.report, err
	}
	n.log.Info().Str("to", order.Dir).Int("files", b.report.Files).Int64("bytes", b.report.Bytes).Int64("linked", b.report.Linked).
		Stringer("took", b.report.Took).Strs("damaged", b.report.Damaged).Msg("the backup is complete")
	return b.report, nil
}

// backupError gives an error of the disk a code: who asks is an administrator, and
// needs to know.
func backupError(err error) error {
	switch _, said := errors.AsType[*kernel.Error](err); {
	case said:
		return err
	case errors.Is(err, vfs.ErrNoSpace):
		return kernel.Errorf(kernel.CodePressure, "", "", "%v", err)
	default:
		return kernel.Errorf(kernel.CodeUnavailable, "", "", "the backup has failed: %v", err)
	}
}

// claim checks the directory, and makes it.
func (b *backup) claim() error {
	dir := b.order.Dir
	if !filepath.IsAbs(dir) || b.order.Rate < 0 {
		return kernel.Errorf(kernel.CodeInvalid, "directory", dir, "it is to be an absolute path on the node, and the rate not negative")
	}
	if within(b.node.cfg.DataDir, dir) {
		return kernel.Errorf(kernel.CodeInvalid, "directory", dir, "it lies in the node's data directory")
	}
	if err := b.fs.MkdirAll(dir); err != nil {
		return kernel.Errorf(kernel.CodeInvalid, "directory", dir, "%v", err)
	}
	names, err := b.fs.List(dir)
	if err != nil {
		return kernel.Errorf(kernel.CodeInvalid, "directory", dir, "%v", err)
	}
	if len(names) > 0 {
		return kernel.Errorf(kernel.CodePrecondition, "directory", dir, "it is not empty")
	}
	return nil
}

// within reports whether a path is a directory or lies in it. Links are followed where they can be.
func within(dir, name string) bool {
	real := func(p string) string {
		p, err := filepath.Abs(p)
		if err != nil {
			return p
		}
		for rest := ""; ; {
			if r, err := filepath.EvalSymlinks(p); err == nil {
				return filepath.Join(r, rest)
			}
			parent := filepath.Dir(p)
			if parent == p {
				return filepath.Join(p, rest)
			}
			p, rest = parent, filepath.Join(filepath.Base(p), rest)
		}
	}
	rel, err := filepath.Rel(real(dir), real(name))
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// run makes the backup.
func (b *backup) run() error {
	n := b.node
	b.manifest = backupManifest{
		Format: manifestFormat, Data: FormatVersion, Version: n.cfg.Version, Cluster: n.file.Cluster, Node: n.file.Node, Begun: n.now().UTC(),
	}
	began := time.Now()
	if err := b.messages(); err != nil {
		return err
	}
	m := &b.manifest
	m.Ended = n.now().UTC()
	for _, f := range m.Files {
		b.report.Bytes += f.Size
	}
	for dir := range b.dirs {
		if err := b.fs.SyncDir(path.Join(b.order.Dir, dir)); err != nil {
			return err
		}
	}
	b.report.Dir, b.report.Node, b.report.Begun, b.report.Took = b.order.Dir, m.Node, m.Begun, time.Since(began)
	b.report.Files, b.report.Damaged = len(m.Files), m.Damaged
	return writeManifest(b.fs, b.order.Dir, m)
}

// messages copies the placement group, and the catalog once it is known how far that goes.
func (b *backup) messages() error {
	n := b.node
	ctx, cancel := context.WithTimeout(b.ctx, backupBarrier)
	defer cancel()
	index, err := n.barrier(ctx, durablePlacement)
	if err != nil {
		return err
	}
	data, err := n.durable.Backup(ctx, index)
	if err != nil {
		return err
	}
	defer data.Close()
	b.manifest.Damaged = data.Missing
	if err := b.log(data); err != nil {
		return err
	}
	if err := b.catalog(ctx); err != nil {
		return err
	}
	b.manifest.Groups = append(b.manifest.Groups, backupGroup{durablePlacement, data.Checkpoint.Index, data.Last, n.durable.Raft().Term()})
	for _, f := range data.Files {
		if err := b.file(data, f); err != nil {
			return err
		}
	}
	return nil
}

// catalog writes a checkpoint of the catalog.
func (b *backup) catalog(ctx context.Context) error {
	n := b.node
	index, err := n.barrier(ctx, metasvc.CatalogGroup)
	if err != nil {
		return err
	}
	if err := awaitApplied(ctx, n.catalog.Raft(), index); err != nil {
		return err
	}
	dir := path.Join(b.order.Dir, catalogDir)
	meta, err := n.catalog.Export(b.fs, dir)
	if err != nil {
		return err
	}
	b.manifest.Groups = append(b.manifest.Groups, backupGroup{metasvc.CatalogGroup, meta.Index, meta.Index, n.catalog.Raft().Term()})
	return b.add(catalogDir)
}

// awaitApplied waits until a replica has applied the log up to an index.
func awaitApplied(ctx context.Context, g *raftgroup.Group, index uint64) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for g.AppliedIndex() < index {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// add enters the files of a folder that the backup has written itself.
func (b *backup) add(dir string) error {
	names, err := b.fs.List(path.Join(b.order.Dir, dir))
	if err != nil {
		return err
	}
	b.dirs[dir] = true
	for _, name := range names {
		f := backupFile{Name: path.Join(dir, name)}
		sum := sha256.New()
		if f.Size, err = b.copy(path.Join(b.order.Dir, f.Name), nil, sum); err != nil {
			return err
		}
		f.Sum = hex.EncodeToString(sum.Sum(nil))
		b.manifest.Files = append(b.manifest.Files, f)
	}
	return nil
}

// file links or copies a file of the placement group.
func (b *backup) file(data *placement.Backup, from placement.BackupFile) error {
	f := backupFile{Name: path.Join(placementDir, from.Name)}
	switch err := data.Check(from, b.pace); {
	case errors.Is(err, placement.ErrDamagedSegment):
		b.manifest.Damaged = append(b.manifest.Damaged, path.Base(from.Name))
	case err != nil:
		return err
	}
	to := path.Join(b.order.Dir, f.Name)
	if dir := path.Dir(f.Name); !b.dirs[dir] {
		if err := b.fs.MkdirAll(path.Dir(to)); err != nil {
			return err
		}
		b.dirs[dir] = true
	}
	sum := sha256.New()
	var out vfs.File
	var err error
	linked := vfs.Link(b.fs, from.Path, to) == nil
	if !linked {
		if out, err = b.fs.Create(to); err != nil {
			return err
		}
	}
	f.Size, err = b.copy(from.Path, out, sum)
	if out != nil {
		if err == nil {
			err = out.Sync()
		}
		err = errors.Join(err, out.Close())
	}
	if err != nil {
		return fmt.Errorf("copy %s: %w", from.Path, err)
	}
	if linked {
		b.report.Linked += f.Size
	}
	f.Sum = hex.EncodeToString(sum.Sum(nil))
	b.manifest.Files = append(b.manifest.Files, f)
	return nil
}

// copy reads a file into a sum and, unless that is nil, another file.
func (b *backup) copy(name string, out vfs.File, sum hash.Hash) (int64, error) {
	in, err := b.fs.Open(name)
	if err != nil {
		return 0, err
	}
	size, err := copyFrom(in, out, sum, b.pace)
	return size, errors.Join(err, in.Close())
}

// copyFrom reads in into a sum and, unless that is nil, into out, which is synced now and then. pace is
// called for every chunk, may be nil, and ends it with an error.
func copyFrom(in, out vfs.File, sum hash.Hash, pace func(bytes int) error) (size int64, err error) {
	buf, unsynced := make([]byte, backupChunk), 0
	for {
		n, err := in.ReadAt(buf, size)
		if n > 0 {
			_, _ = sum.Write(buf[:n]) // never fails
		}
		if n > 0 && out != nil {
			if _, err := out.WriteAt(buf[:n], size); err != nil {
				return size, err
			}
			if unsynced += n; unsynced >= backupSync {
				if err := out.Sync(); err != nil {
					return size, err
				}
				unsynced = 0
			}
		}
		size += int64(n)
		if errors.Is(err, io.EOF) {
			return size, nil
		}
		if err == nil && pace != nil {
			err = pace(n)
		}
		if err != nil {
			return size, err
		}
	}
}

// pace holds the backup to its rate. An error ends it.
func (b *backup) pace(bytes int) error {
	if b.order.Rate == 0 {
		return b.ctx.Err()
	}
	if b.read += int64(bytes); b.read < b.order.Rate/20 {
		return b.ctx.Err()
	}
	wait := time.NewTimer(time.Duration(float64(b.read) / float64(b.order.Rate) * float64(time.Second)))
	defer wait.Stop()
	b.read = 0
	select {
	case <-wait.C:
		return nil
	case <-b.ctx.Done():
		return b.ctx.Err()
	}
}

// clearDir removes what is in a directory.
func clearDir(fsys vfs.FS, dir string) error {
	names, err := fsys.List(dir)
	for _, name := range names {
		full := path.Join(dir, name)
		if _, no := fsys.List(full); no == nil {
			err = errors.Join(err, removeAll(fsys, full))
		} else {
			err = errors.Join(err, fsys.Remove(full))
		}
	}
	return err
}
