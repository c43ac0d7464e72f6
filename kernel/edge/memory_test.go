package edge

import (
	"fmt"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// TestMemoryIsBounded: a connection that declares for ever is remembered the latest of.
func TestMemoryIsBounded(t *testing.T) {
	var m memory
	for i := range maxMemory + 10 {
		name := fmt.Sprint(i)
		m.exchange(kernel.Exchange{Name: name})
		m.queue(broker.QueueSpec{Name: name})
		m.bind(kernel.Binding{Exchange: name, Queue: name})
		m.bind(kernel.Binding{Exchange: "", Queue: name, Key: "k"})
	}
	if len(m.exchanges) != maxMemory || len(m.queues) != maxMemory || len(m.bindings) > maxMemory {
		t.Errorf("%d exchanges, %d queues, %d bindings", len(m.exchanges), len(m.queues), len(m.bindings))
	}
	for _, q := range m.queues {
		if q.Name == "9" {
			t.Error("the oldest are remembered")
		}
	}
	if m.bindings[len(m.bindings)-1].Queue != fmt.Sprint(maxMemory+9) {
		t.Error("the latest is not")
	}
}
