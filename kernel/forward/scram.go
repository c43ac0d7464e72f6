package forward

import (
	"context"
	"crypto/rand"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/kernel/edge"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

var _ edge.Scrams = (*Host)(nil)

// scram implements edge.Scram. The broker's end of it is there after the first message
// and until the second.
type scram struct {
	h                 *Host
	mechanism, tenant string
	remote            net.Addr
	token             string // names the login at the other end; "" = not begun
	id                kernel.Identity
}

// BeginScram implements edge.Scrams. It asks nobody.
func (h *Host) BeginScram(mechanism, tenant string, remote net.Addr) (edge.Scram, bool) {
	if !slices.Contains(broker.ScramMechanisms(), mechanism) {
		return nil, false
	}
	return &scram{h: h, mechanism: mechanism, tenant: tenant, remote: remote}, true
}

// Step implements edge.Scram.
func (s *scram) Step(ctx context.Context, msg []byte) (answer []byte, done bool, err error) {
	if s.token == "" {
		r, err := s.h.ask(ctx, askScram, s.tenant, s.mechanism, string(msg), s.remote)
		if err != nil {
			return nil, false, err
		}
		s.token, answer = r.String(), slices.Clone(r.bytes())
		return answer, false, either(nil, r.Done())
	}
	r, err := s.h.ask(ctx, askScramEnd, "", s.token, string(msg), nil)
	if err != nil {
		return nil, false, err
	}
	s.id, answer = r.identity(), slices.Clone(r.bytes())
	if err := r.Done(); err != nil {
		return nil, false, either(nil, err)
	}
	return answer, true, nil
}

// Identity implements edge.Scram.
func (s *scram) Identity() kernel.Identity { return s.id }

const (
	// maxScrams bounds the logins that have begun, and scramTime how long they may take.
	maxScrams = 8192
	scramTime = time.Minute
)

// scrams are the logins of clients of other nodes that have begun. Safe for concurrent
// use.
type scrams struct {
	mu   sync.Mutex
	list map[string]begun
}

// begun is a login that has begun.
type begun struct {
	s    *broker.Scram
	from string
	at   time.Time
}

// begin handles the first message of a login.
func (t *scrams) begin(ctx context.Context, b *broker.Broker, from, mechanism, tenant string, msg []byte, remote net.Addr) ([]byte, error) {
	s, ok := b.BeginScram(mechanism, tenant, remote)
	if !ok {
		return nil, kernel.Errorf(kernel.CodeNotImplemented, "mechanism", mechanism, "it is not known")
	}
	answer, _, err := s.Step(ctx, msg)
	if err != nil {
		return nil, err
	}
	token, now := rand.Text(), time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.list) >= maxScrams {
		for name, one := range t.list {
			if now.Sub(one.at) > scramTime {
				delete(t.list, name)
			}
		}
	}
	if len(t.list) >= maxScrams {
		return nil, kernel.Errorf(kernel.CodeLimit, "", "", "too many logins have begun")
	}
	if t.list == nil {
		t.list = make(map[string]begun)
	}
	t.list[token] = begun{s, from, now}
	return appendBytes(codec.AppendString(appendError(nil, nil), token), answer), nil
}

// end handles the second message.
func (t *scrams) end(ctx context.Context, from, token string, msg []byte) ([]byte, error) {
	t.mu.Lock()
	one, ok := t.list[token]
	if ok = ok && one.from == from; ok {
		delete(t.list, token)
	}
	t.mu.Unlock()
	if !ok || time.Since(one.at) > scramTime {
		return nil, kernel.Errorf(kernel.CodeInvalid, "", "", "no such login has begun")
	}
	answer, done, err := one.s.Step(ctx, msg)
	if err == nil && !done {
		err = kernel.Errorf(kernel.CodeInvalid, "", "", "the login takes more messages than it may")
	}
	if err != nil {
		return nil, err
	}
	return appendBytes(appendIdentity(appendError(nil, nil), one.s.Identity()), answer), nil
}
