package mqtt

import (
	"sync"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// will is the message that a client leaves behind.
type will struct {
	identity kernel.Identity
	clientID string
	message  *wire.Will
	delay    time.Duration
}

func (c *conn) newWill(m *wire.Will) *will {
	return &will{identity: c.identity, clientID: c.clientID, message: m, delay: time.Duration(m.Delay) * time.Second}
}

// leaveWill publishes the will, or lets it wait for its delay: until then a
// connection that resumes the session cancels it. The delay ends with the
// session, if that is earlier (3.1.3.2.2).
func (c *conn) leaveWill() {
	w := c.will
	if w == nil {
		return
	}
	c.will = nil
	if d := min(w.delay, c.expiry); d > 0 && c.server.wills.wait(c.willKey(), w, d) {
		return
	}
	if topic, err := w.record(&c.in); err == nil {
		_, _ = c.publisher.ToTopic(topic, &c.in.rec, noToken) // nobody is left to be told
	}
}

// record fills in with the will's record and returns its topic name.
func (w *will) record(in *inbound) (topic string, err error) {
	in.now = time.Now().UnixMilli()
	in.begin(w.message.Payload, w.message.QoS)
	p := w.message.Properties()
	if err := in.properties(&p, w.identity.User); err != nil {
		return "", err
	}
	if topic = w.message.Topic; reservedTopic(topic) {
		return "", kernel.Errorf(kernel.CodeInvalidName, "topic", topic, "the name is reserved")
	}
	in.finish(topic)
	return topic, nil
}

// willKey names a client id within its tenant.
type willKey struct{ tenant, clientID string }

func (c *conn) willKey() willKey { return willKey{c.identity.Tenant, c.clientID} }

// wills are the wills that wait for their delay. They are kept in memory: a
// server that stops publishes them, one that crashes loses them.
type wills struct {
	server *Server

	mu      sync.Mutex
	closed  bool
	waiting map[willKey]*delayedWill
	running sync.WaitGroup // publishing
}

type delayedWill struct {
	*will
	timer *time.Timer
}

func (w *wills) init(s *Server) {
	w.server = s
	w.waiting = map[willKey]*delayedWill{}
}

// wait keeps a will for d. It returns false when the server is stopping.
func (w *wills) wait(key willKey, m *will, d time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	if old := w.waiting[key]; old != nil { // its session has gone meanwhile
		w.release(key, old)
	}
	dw := &delayedWill{will: m}
	dw.timer = time.AfterFunc(d, func() { w.due(key, dw) })
	w.waiting[key] = dw
	return true
}

// resolve is called when a client id connects: a session that goes on cancels
// its will, one that has ended publishes it now.
func (w *wills) resolve(key willKey, resumed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	dw := w.waiting[key]
	switch {
	case dw == nil:
	case resumed:
		dw.timer.Stop()
		delete(w.waiting, key)
	default:
		w.release(key, dw)
	}
}

func (w *wills) due(key willKey, dw *delayedWill) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting[key] == dw {
		w.release(key, dw)
	}
}

// release publishes a will on a goroutine that close awaits. mu is held.
func (w *wills) release(key willKey, dw *delayedWill) {
	dw.timer.Stop()
	delete(w.waiting, key)
	w.running.Add(1)
	go func() {
		defer w.running.Done()
		w.publish(dw.will)
	}()
}

// publish publishes a will whose connection has gone, under its identity.
func (w *wills) publish(m *will) {
	info := kernel.ConnectionInfo{Protocol: protocol, Name: "will of " + m.clientID, ClientID: m.clientID}
	log := w.server.log.With().Str("client", m.clientID).Logger()
	client, err := w.server.node.Connect(m.identity, info, func(error) {})
	if err != nil {
		log.Warn().Err(err).Msg("mqtt will not published")
		return
	}
	defer client.Close()
	var in inbound
	topic, err := m.record(&in)
	if err != nil {
		log.Warn().Err(err).Msg("mqtt will not published")
		return
	}
	p := client.Publisher(nil)
	defer p.Close()
	if _, err := p.ToTopic(topic, &in.rec, noToken); err != nil {
		log.Warn().Err(err).Msg("mqtt will not published")
	}
}

// close publishes what waits and awaits it.
func (w *wills) close() {
	w.mu.Lock()
	w.closed = true
	for key, dw := range w.waiting {
		w.release(key, dw)
	}
	w.mu.Unlock()
	w.running.Wait()
}
