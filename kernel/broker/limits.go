package broker

import (
	"context"
	"math"
	"reflect"
	"strings"
	"time"

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
	if !l.DeadLetter || l.Overflow != kernel.RejectPublish || kq.Type != kernel.Quorum {
		l.AtLeastOnce = false // else the queue would grow without bound
	}
	return l
}

func limitNumber(l *kernel.Limits, name string, v int64) {
	switch name {
	case policy.MessageTTL:
		l.MessageTTL = time.Duration(min(v, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
	case policy.Expires:
		l.Expires = time.Duration(min(v, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
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

// limitsOf returns the limits of a group on a topic, nil if nothing limits it.
// Here the policy that applies to it joins in.
func limitsOf(kt *kernel.Topic, spec *catalog.Group) *kernel.Limits {
	kq := spec.Queue
	if spec.Address.IsOwn() {
		kq = kt.Queue
	}
	if kq == nil {
		return nil
	}
	if l := declaredLimits(kq); l != kernel.NoLimits() {
		return &l
	}
	return nil
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

// setLimits gives a group limits, nil for none.
func (b *Broker) setLimits(ctx context.Context, g *group, l *kernel.Limits) error {
	none := kernel.NoLimits()
	if l == nil {
		l = &none
	}
	return g.place.SetLimits(ctx, g.id, *l, b.catalog.Revision())
}
