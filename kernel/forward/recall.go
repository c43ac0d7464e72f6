package forward

import (
	"sync"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

const (
	// recallTime is how long is remembered what the node that serves has said of topics,
	// and maxRecalled how much.
	recallTime  = time.Second
	maxRecalled = 1024
)

// recalled is what something is remembered by: a method, and what it was called with.
type recalled struct {
	m          method
	kind, name string
	id         kernel.TopicID
}

// said is what was remembered: acts, or a topic.
type said struct {
	topic *kernel.Topic
	acts  kernel.Acts // what is not among them may be by now
	until time.Time
}

// recall remembers what the node that serves has said is there, and never what is not.
// Entries are made by the link's reader, in the order of what has come. The zero value is
// empty. Safe for concurrent use.
type recall struct {
	mu   sync.Mutex
	list map[recalled]said
}

// get returns what was said of something, if it is remembered.
func (c *recall) get(of recalled) (s said, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok = c.list[of]
	if ok && time.Now().After(s.until) {
		delete(c.list, of)
		return said{}, false
	}
	return s, ok
}

func (c *recall) put(of recalled, s said) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.list[of]; !known && len(c.list) >= maxRecalled {
		clear(c.list)
	}
	if c.list == nil {
		c.list = make(map[recalled]said)
	}
	s.until = time.Now().Add(recallTime)
	c.list[of] = s
}

// topic remembers a topic, by its name and by its number.
func (c *recall) topic(t *kernel.Topic) {
	c.put(recalled{m: methodTopic, name: t.Name}, said{topic: t})
	c.put(recalled{m: methodTopicByID, id: t.ID}, said{topic: t})
}

// forget forgets all.
func (c *recall) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.list)
}

// doubt forgets all if an error says that some of it is not true any more.
func (c *recall) doubt(err error) {
	if err == nil {
		return
	}
	switch kernel.CodeOf(err) {
	case kernel.CodeNotFound, kernel.CodeDropped, kernel.CodeAccessRefused:
		c.forget()
	}
}
