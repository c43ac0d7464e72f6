package broker

import (
	"context"
	"net"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/auth"
)

// Scram is a login in several messages (RFC 5802), which never shows the
// password. Not for concurrent use.
type Scram struct {
	b        *Broker
	exchange *auth.Scram
	tenant   string
	user     string
	remote   net.Addr
	asked    bool
	id       kernel.Identity
}

// ScramMechanisms are the names of those that BeginScram knows.
func ScramMechanisms() []string { return []string{auth.ScramSHA256, auth.ScramSHA512} }

// BeginScram begins a login with a SCRAM mechanism. The other arguments are those
// of Authenticate. ok is false for a mechanism that is not known.
func (b *Broker) BeginScram(mechanism, tenant string, remote net.Addr) (s *Scram, ok bool) {
	exchange, ok := auth.NewScram(mechanism)
	if !ok {
		return nil, false
	}
	return &Scram{b: b, exchange: exchange, tenant: tenant, remote: remote}, true
}

// Step takes the client's next message, which it does not keep, and returns the
// answer. With the second one the login is done, and Identity says who it is. The
// errors are those of Authenticate, and CodeInvalid for a message that breaks the
// rules; after one the login has failed.
func (s *Scram) Step(ctx context.Context, msg []byte) (answer []byte, done bool, err error) {
	ctx, cancel := s.b.untilStop(ctx)
	defer cancel()
	if !s.asked {
		s.asked = true
		answer, err = s.exchange.First(msg, s.key)
		if err != nil {
			err = kernel.Errorf(kernel.CodeInvalid, "", "", "%v", err)
		}
		return answer, false, err
	}
	ctx, late := context.WithTimeoutCause(ctx, s.b.access.throttle.Patience(), errTooManyLogins)
	defer late()
	attempt, err := s.b.access.attempt(ctx, s.user, s.remote)
	if err != nil {
		return nil, false, err
	}
	answer, ok, err := s.exchange.Final(msg)
	switch {
	case err != nil:
		_ = s.b.access.failed(ctx, attempt, s.user, s.remote)
		return nil, false, kernel.Errorf(kernel.CodeInvalid, "", "", "%v", err)
	case !ok || !s.still():
		return nil, false, s.b.access.failed(ctx, attempt, s.user, s.remote)
	}
	attempt.Succeed()
	s.id = kernel.Identity{User: s.user, Tenant: s.tenant}
	return answer, true, nil
}

// key finds the key of the name in the client's first message.
func (s *Scram) key(name string) (kernel.ScramKey, bool) {
	s.tenant, s.user = splitUser(s.tenant, name)
	u, _ := s.b.directory().User(s.user)
	return auth.ScramKeyOf(u, s.user, s.exchange.Mechanism(), s.b.access.secret)
}

// still reports whether the user is there, and may be.
func (s *Scram) still() bool {
	_, ok := s.b.directory().User(s.user)
	return ok && mayComeFrom(s.user, s.remote)
}

// Identity is who has logged in, once Step said done.
func (s *Scram) Identity() kernel.Identity { return s.id }
