package broker

import (
	"context"
	"math"
	"reflect"
	"strings"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/policy"
	"github.com/trivium-mq/trivium/metasvc/catalog"
)

// declaredLimits returns what a queue declaration asks for. Arguments that mean nothing
// here are left out; their values have been checked before. What a policy asks
// for comes on top: policy.Effective.Limits.
func declaredLimits(kq *kernel.Queue) kernel.Limits {
	l := kernel.NoLimits()
	if kq.Type == kernel.Quorum {
		l.DeliveryLimit = quorumFailedLimit
	}
	for _, a := range kq.Arguments {
		name, ok := strings.CutPrefix(a.Name, "x-")
		if !ok {
			continue
		}
		switch v := a.Value.(type) {
		case int64:
			limitNumber(&l, name, v)
		case string:
			limitText(&l, name, v)
		}
	}
	return l
}

func limitNumber(l *kernel.Limits, name string, v int64) {
	switch name {
	case policy.MessageTTL:
		l.MessageTTL = policy.Milliseconds(v)
	case policy.Expires:
		l.Expires = policy.Milliseconds(v)
	case policy.MaxLength:
		l.MaxLength = v
	case policy.MaxLengthBytes:
		l.MaxBytes = v
	case policy.DeliveryLimit:
		l.DeliveryLimit = int(max(kernel.Unlimited, min(v, math.MaxInt32)))
	}
}

func limitText(l *kernel.Limits, name, v string) {
	switch name {
	case policy.Overflow:
		l.Overflow, _ = policy.OverflowOf(v)
	case policy.DeadLetterExchange:
		l.DeadLetter, l.DeadLetterExchange = true, v
	case policy.DeadLetterKey:
		l.DeadLetterKey = &v
	case policy.DeadLetterStrategy:
		l.AtLeastOnce = v == "at-least-once"
	}
}

// queueOf returns the declaration of a group on a topic, nil if it is no queue. A
// queue that a publish made, and nobody has declared, counts as a plain one.
func queueOf(kt *kernel.Topic, spec *catalog.Group) *kernel.Queue {
	switch {
	case !spec.Address.IsOwn():
		return spec.Queue
	case kt.Queue == nil && !spec.Auto:
		return &kernel.Queue{Durable: true}
	}
	return kt.Queue
}

// limitsOf returns the limits of a group on a topic, by its declaration and the
// policies that apply to it; nil if nothing limits it, as a reply queue.
func (b *Broker) limitsOf(kt *kernel.Topic, spec *catalog.Group) *kernel.Limits {
	kq := queueOf(kt, spec)
	if kq == nil || kernel.IsReply(kt.Name) {
		return nil
	}
	l := declaredLimits(kq)
	if t, ok := b.tenant(kt.Tenant); ok {
		l = t.policies.set.Load().Queue(queueName(spec.Address), kq.Type).Limits(l, kq)
	}
	if !l.DeadLetter || l.Overflow != kernel.RejectPublish || kq.Type != kernel.Quorum {
		l.AtLeastOnce = false // else the queue would grow without bound
	}
	if l == kernel.NoLimits() {
		return nil
	}
	return &l
}

// retentionOf returns how long the settled records of a topic stay, and ids are
// remembered, by what it was made with and, if it is a queue, the policies that apply
// to it.
func (b *Broker) retentionOf(kt *kernel.Topic) kernel.Retention {
	kind, own, age, bytes := kernel.Classic, kt.Retention, false, false
	switch {
	case kt.Queue != nil:
		if a := argument(kt.Queue.Arguments, "x-"+policy.DedupWindow); a != nil {
			ms, _ := a.Value.(int64)
			own.Dedup = policy.Window(ms)
		}
		kind = kt.Queue.Type
		age = argument(kt.Queue.Arguments, "x-retention") != nil
		bytes = argument(kt.Queue.Arguments, "x-retention-bytes") != nil
	case kt.ExpiresAt.IsZero():
		return kt.Retention
	}
	t, ok := b.tenant(kt.Tenant)
	if !ok || kt.Kind != kernel.Plain {
		return own
	}
	return t.policies.set.Load().Queue(kt.Name, kind).Retention(own, age, bytes)
}

// sameLimits says whether two limits mean the same.
func sameLimits(a, b *kernel.Limits) bool {
	none := kernel.NoLimits()
	if a == nil {
		a = &none
	}
	if b == nil {
		b = &none
	}
	return reflect.DeepEqual(a, b)
}

// setLimits gives a group limits, nil for none, unless it has them.
func (t *tenant) setLimits(ctx context.Context, g *group, l *kernel.Limits) error {
	want := kernel.NoLimits()
	if l != nil {
		want = *l
	}
	if has, _ := g.place.Limits(g.id); sameLimits(&has, l) {
		return nil
	}
	if err := g.place.SetLimits(ctx, g.id, want, t.b.catalog.Revision()); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expireAfter(g, want.Expires)
	return nil
}

// setRetention gives a topic its retention by retentionOf, unless it has it.
func (t *tenant) setRetention(ctx context.Context, kt *kernel.Topic) error {
	want := t.b.retentionOf(kt)
	t.mu.Lock()
	tp, ok := t.topics[kt.ID]
	has := ok && tp.retention == want
	t.mu.Unlock()
	if has {
		return nil
	}
	if err := t.b.placeOf(kt.Volatile).SetRetention(ctx, kt.ID, want, t.b.catalog.Revision()); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if tp, ok := t.topics[kt.ID]; ok {
		tp.retention = want
	}
	return nil
}
