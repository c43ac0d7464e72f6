package broker

import (
	"net"
	"testing"

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
