package broker

import (
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel"
)

// TestStewardBesideABeginningFacade: who administers may log in at any moment, also
// when the node has just begun to serve and does not know its users yet.
func TestStewardBesideABeginningFacade(t *testing.T) {
	b := open(t, t.TempDir())
	n := b.node
	s := n.Doorman()
	from := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}
	defer n.facade.Store(b)
	for _, facade := range []*Broker{b, newBroker(n, n.lead), nil} {
		n.facade.Store(facade)
		if u, err := s.Login(t.Context(), "guest", "guest", from); err != nil || u.Name != "guest" {
			t.Errorf("%v, %v", u, err)
		}
		if _, err := s.Login(t.Context(), "guest", "wrong", from); kernel.CodeOf(err) != kernel.CodeAccessRefused {
			t.Errorf("with a wrong password: %v", err)
		}
	}
}

// journal keeps what is logged. Safe for concurrent use.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// TestRefusedLoginIsLogged: whether the node serves or not.
func TestRefusedLoginIsLogged(t *testing.T) {
	out := &journal{}
	b := open(t, t.TempDir(), func(c *Config) { c.Logger = zerolog.New(out) })
	n := b.node
	defer n.facade.Store(b)
	from := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 1234}
	for _, facade := range []*Broker{b, nil} {
		n.facade.Store(facade)
		before := len(out.String())
		if _, err := n.Doorman().Login(t.Context(), "guest", "wrong", from); kernel.CodeOf(err) != kernel.CodeAccessRefused {
			t.Errorf("with a wrong password: %v", err)
		}
		if said := out.String()[before:]; !strings.Contains(said, "login refused") || !strings.Contains(said, from.String()) || !strings.Contains(said, "guest") {
			t.Errorf("serving %v: the log says %q", facade != nil, said)
		}
	}
}
