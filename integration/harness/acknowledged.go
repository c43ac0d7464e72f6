package harness

import (
	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
	"github.com/eclipse/paho.golang/paho/session"
	"github.com/eclipse/paho.golang/paho/session/state"
)

// Acknowledged is the session of a client for MQTT 5 (paho.ClientConfig's Session)
// that passes a message on when its acknowledgement has been written. With handlers,
// which are called before that, a client that takes a message and disconnects may not
// have acknowledged it, and gets it again when it comes back.
type Acknowledged struct {
	session.SessionManager
	to chan<- *paho.Publish
}

// NewAcknowledged returns an empty session that passes messages on to a channel.
func NewAcknowledged(to chan<- *paho.Publish) *Acknowledged {
	return &Acknowledged{SessionManager: state.NewInMemory(), to: to}
}

// Ack acknowledges a message, and passes it on.
func (a *Acknowledged) Ack(p *packets.Publish) error {
	err := a.SessionManager.Ack(p)
	a.to <- paho.PublishFromPacketPublish(p)
	return err
}
