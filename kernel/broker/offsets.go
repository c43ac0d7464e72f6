package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/placement"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

// Committed reader positions are keyed state of the durable placement group:
//
//	key   "o/" tenant NUL group NUL topic UUID (16 bytes) partition (varint)
//	value version, offset, leader epoch, metadata
//
// A group's name contains no NUL.
const (
	offsetPrefix  = "o/"
	offsetVersion = 1
	maxMetadata   = 4096 // bytes
)

// OffsetCommit is one committed reader position.
type OffsetCommit struct {
	Topic       kernel.TopicID
	Partition   int32
	Offset      int64
	LeaderEpoch int32
	Metadata    string
}

func offsetKey(tenant, group string) []byte {
	return []byte(offsetPrefix + tenant + "\x00" + group + "\x00")
}

// CommitOffsets stores reader positions of a reader group durably, all or
// none. CodeInvalidName, CodeTooLarge (metadata).
func (c *Conn) CommitOffsets(ctx context.Context, group string, commits []OffsetCommit) error {
	entries, err := c.offsetEntries(group, commits)
	if err != nil || len(entries) == 0 {
		return err
	}
	cctx, cancel := context.WithTimeout(c.b.ctx, commitWait)
	defer cancel()
	return c.b.durable.Put(cctx, entries)
}

// offsetEntries are what reader positions are written as, if the user may commit them.
func (c *Conn) offsetEntries(group string, commits []OffsetCommit) ([]placement.KV, error) {
	if err := kernel.CheckName("group", group); err != nil {
		return nil, err
	}
	if err := c.allow(kernel.Read, KindGroup, group); err != nil {
		return nil, err
	}
	entries := make([]placement.KV, len(commits))
	for i, o := range commits {
		if len(o.Metadata) > maxMetadata {
			return nil, kernel.Errorf(kernel.CodeTooLarge, "group", group, "the metadata is longer than %d bytes", maxMetadata)
		}
		key := append(offsetKey(c.tenant.name, group), o.Topic[:]...)
		value := codec.AppendInt([]byte{offsetVersion}, o.Offset)
		value = codec.AppendInt(value, int64(o.LeaderEpoch))
		entries[i] = placement.KV{Key: codec.AppendUint(key, uint64(o.Partition)), Value: codec.AppendString(value, o.Metadata)}
	}
	return entries, nil
}

// Offsets returns the committed positions of a reader group, all topics.
func (c *Conn) Offsets(group string) ([]OffsetCommit, error) {
	if err := c.allow(kernel.Read, KindGroup, group); err != nil {
		return nil, err
	}
	prefix := offsetKey(c.tenant.name, group)
	var list []OffsetCommit
	err := c.b.durable.Iterate(prefix, func(key, value []byte) error {
		o, err := readOffset(key[len(prefix):], value)
		if err == nil {
			list = append(list, o)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("offsets of group %q: %w", group, err)
	}
	return list, nil
}

func readOffset(key, value []byte) (o OffsetCommit, err error) {
	k, v := &codec.Reader{B: key}, &codec.Reader{B: value}
	copy(o.Topic[:], k.Bytes(len(o.Topic)))
	o.Partition = int32(k.Uint())
	if version := v.Byte(); v.Err() == nil && version != offsetVersion {
		return o, fmt.Errorf("unknown version %d of a committed offset", version)
	}
	o.Offset, o.LeaderEpoch = v.Int(), int32(v.Int())
	o.Metadata = v.String()
	return o, errors.Join(k.Done(), v.Done())
}

// OffsetGroups lists the reader groups that have committed positions and that the
// user may read.
func (c *Conn) OffsetGroups() []string {
	prefix := []byte(offsetPrefix + c.tenant.name + "\x00")
	var names []string
	err := c.b.durable.Iterate(prefix, func(key, _ []byte) error {
		name, _, _ := strings.Cut(string(key[len(prefix):]), "\x00")
		if len(names) == 0 || names[len(names)-1] != name {
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		c.b.log.Error().Err(err).Msg("the reader groups could not be listed")
	}
	return slices.DeleteFunc(names, func(name string) bool { return !c.May(kernel.Read, KindGroup, name) })
}

// DeleteOffsets forgets a reader group's positions.
func (c *Conn) DeleteOffsets(ctx context.Context, group string) error {
	if err := c.allow(kernel.Read, KindGroup, group); err != nil {
		return err
	}
	return c.b.dropKeys(offsetKey(c.tenant.name, group), func([]byte) bool { return true })
}

// dropOffsetsOf forgets all positions in a topic that has gone.
func (b *Broker) dropOffsetsOf(tenant string, id kernel.TopicID) error {
	return b.dropOffsets(tenant, func(topic kernel.TopicID) bool { return topic == id })
}

// dropOffsets forgets the positions in the topics that gone says have gone.
func (b *Broker) dropOffsets(tenant string, gone func(kernel.TopicID) bool) error {
	prefix := []byte(offsetPrefix + tenant + "\x00")
	return b.dropKeys(prefix, func(key []byte) bool {
		_, rest, _ := bytes.Cut(key[len(prefix):], []byte{0})
		const size = len(kernel.TopicID{})
		return len(rest) >= size && gone(kernel.TopicID(rest[:size]))
	})
}

// dropBatch is how many keys one commit deletes.
const dropBatch = 1000

// dropKeys deletes the keys of the durable keyed state that begin with prefix
// and that match.
func (b *Broker) dropKeys(prefix []byte, match func(key []byte) bool) error {
	var dead []placement.KV
	err := b.durable.Iterate(prefix, func(key, _ []byte) error {
		if match(key) {
			dead = append(dead, placement.KV{Key: bytes.Clone(key)})
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("look for keys to delete: %w", err)
	}
	for len(dead) > 0 {
		n := min(len(dead), dropBatch)
		ctx, cancel := b.changeContext()
		err := b.durable.Put(ctx, dead[:n])
		cancel()
		if err != nil {
			return err
		}
		dead = dead[n:]
	}
	return nil
}
