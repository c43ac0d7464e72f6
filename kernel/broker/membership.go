package broker

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/placement"
)

// Memberships are what coordinators of groups of readers write down of them, for those that
// follow: who is a member, and what it was assigned. Nobody else looks into it. They are
// keyed state of the durable placement group:
//
//	key   "m/" tenant NUL protocol NUL group
//	value version, and what the coordinator has given
//
// Neither a protocol's nor a group's name contains a NUL.
const (
	membershipPrefix  = "m/"
	membershipVersion = 1
	// maxMembership bounds one, in bytes, and maxMemberships a list of names.
	maxMembership  = 9 << 20
	maxMemberships = 10000
)

func membershipKey(by Office, tenant, group string) []byte {
	return []byte(membershipPrefix + tenant + "\x00" + string(by.Protocol) + "\x00" + group)
}

// errUnkept says that memberships are not kept now, because a node of an earlier version
// coordinates groups: its coordinators have theirs in memory only.
var errUnkept = &kernel.Error{Code: kernel.CodeNotImplemented, Detail: "a coordinator of an earlier version keeps no memberships"}

// errNoRoom says that the disk is too full to keep a membership: groups go on, with what was
// kept before.
var errNoRoom = &kernel.Error{Code: kernel.CodePressure, Detail: "the disk has no room for a membership"}

// Membership returns what is kept of a group for its coordinator, nil if that is nothing: all
// that was kept by the coordinators before. CodeFenced as for Coordinates; CodeNotImplemented:
// nothing is kept now; CodeCorrupt: what is there is of another version.
func (b *Broker) Membership(ctx context.Context, by Office, tenant, group string) ([]byte, error) {
	if err := b.keeps(ctx, by, tenant, group); err != nil {
		return nil, err
	}
	value, err := b.durable.Get(membershipKey(by, tenant, group))
	switch {
	case err != nil || value == nil:
		return nil, err
	case len(value) == 0 || value[0] != membershipVersion:
		return nil, kernel.Errorf(kernel.CodeCorrupt, KindGroup, group, "its membership is of an unknown version")
	}
	return value[1:], nil
}

// keeps says whether that office may ask for the membership of a group, or why not.
func (b *Broker) keeps(ctx context.Context, by Office, tenant, group string) error {
	if err := kernel.CheckName("group", group); err != nil {
		return err
	}
	if !b.HasTenant(tenant) {
		return noTenant(tenant)
	}
	now, err := b.coordinates(ctx, by, tenant, group)
	if err == nil && !now.Keeps {
		err = errUnkept
	}
	return err
}

// KeepMembership keeps that of a group, as its coordinator has it; nil removes it. Errors as
// for Membership, and CodeTooLarge, CodePressure (the
// disk is full), CodeUnknown. A coordinator that follows finds it, or it was not kept:
// what was asked for in an earlier tenure is refused from then on.
func (b *Broker) KeepMembership(ctx context.Context, by Office, tenant, group string, value []byte) error {
	if len(value) > maxMembership {
		return kernel.Errorf(kernel.CodeTooLarge, KindGroup, group, "its membership is longer than %d bytes", maxMembership)
	}
	if err := b.keeps(ctx, by, tenant, group); err != nil {
		return err
	}
	if !b.durable.HasRoom(len(value)) {
		return errNoRoom
	}
	e := placement.KV{Key: membershipKey(by, tenant, group)}
	if value != nil {
		e.Value = append([]byte{membershipVersion}, value...)
	}
	return b.putBy(ctx, by, tenant, group, true, []placement.KV{e})
}

// Memberships lists the groups of a tenant of which something is kept and which that office
// coordinates, the first 10,000 by name.
func (b *Broker) Memberships(ctx context.Context, by Office, tenant string) ([]string, error) {
	now, err := b.Coordinators(ctx, by.Protocol)
	if err != nil {
		return nil, err
	}
	prefix := membershipKey(by, tenant, "")
	var names []string
	err = b.durable.Iterate(prefix, func(key, _ []byte) error {
		name := string(key[len(prefix):])
		if len(names) < maxMemberships && now.check(by, tenant, name) == nil {
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("memberships of %q: %w", tenant, err)
	}
	return names, nil
}

// CoordinatorsFor is Coordinators for a node that asks. One that does not know of
// memberships keeps those of its groups to itself: what is kept of any is outdated from then
// on, and goes.
func (b *Broker) CoordinatorsFor(ctx context.Context, p kernel.Protocol, node string, aware bool) (Coordination, error) {
	o := &b.offices
	o.mu.RLock()
	t := o.of[p]
	known := false
	if t != nil {
		_, known = t.unaware[node]
	}
	same := t != nil && known != aware && (aware || !t.kept.Load())
	o.mu.RUnlock()
	if !same {
		if err := b.note(p, node, aware); err != nil {
			return Coordination{}, err
		}
	}
	return b.Coordinators(ctx, p)
}

// note notes whether a node knows of memberships.
func (b *Broker) note(p kernel.Protocol, node string, aware bool) error {
	o := &b.offices
	o.mu.Lock()
	defer o.mu.Unlock()
	t := o.get(p)
	if aware {
		delete(t.unaware, node)
		return nil
	}
	if t.unaware[node] = struct{}{}; !t.kept.Load() {
		return nil
	}
	err := b.dropKeys([]byte(membershipPrefix), func(key []byte) bool {
		_, rest, _ := bytes.Cut(key[len(membershipPrefix):], []byte{0})
		return strings.HasPrefix(string(rest), string(p)+"\x00")
	})
	t.kept.Store(err != nil)
	return err
}
