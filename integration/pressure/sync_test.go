package pressure

import (
	"syscall"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// TestRow5SyncFails: a sync that fails once is not tried again. What waits for its
// confirm does not get one, the node serves no more, and after a restart what was
// confirmed before is there.
func TestRow5SyncFails(t *testing.T) {
	dir := t.TempDir()
	n, end := openFaulty(t, dir, 0)
	conn, ch, _, err := n.at.OpenAMQP()
	harness.Must(t, err)
	ended := conn.NotifyClose(make(chan *amqp091.Error, 1))
	p := &producer{ch: ch}
	harness.Must(t, ch.Confirm(false))
	harness.Declare(t, ch, "q")
	confirmed(t, p.publish(t, "q", []byte("before")))
	n.fault.Add(vfs.Rule{Op: vfs.OpSync, Name: "*.wal", Times: 1, Err: syscall.EIO})
	lost := p.publish(t, "q", []byte("lost"))
	if e := harness.Receive(t, ended); e == nil || e.Code != amqp091.InternalError {
		t.Errorf("closed with %v, want 541", e)
	}
	if lost.Acked() {
		t.Error("confirmed although the sync has failed")
	}
	if n.broker.Ready() == nil {
		t.Error("the node says that it serves")
	}
	end()

	n, end = openFaulty(t, dir, 0)
	defer end()
	_, ch = n.at.DialAMQP(t)
	d, ok, err := ch.Get("q", true)
	if err != nil || !ok || string(d.Body) != "before" {
		t.Errorf("after the restart: %q, %v, %v", d.Body, ok, err)
	}
}

// TestRow7SlowSync: with syncs that take two seconds confirms are late, and nothing
// else: heartbeats of one second are kept, and no connection ends.
func TestRow7SlowSync(t *testing.T) {
	n, end := openFaulty(t, t.TempDir(), 0)
	defer end()
	conn, ch := n.at.DialAMQP(t)
	ended := conn.NotifyClose(make(chan *amqp091.Error, 1))
	p := &producer{ch: ch}
	harness.Must(t, ch.Confirm(false))
	harness.Declare(t, ch, "q")
	const delay = 2 * time.Second
	n.fault.Add(vfs.Rule{Op: vfs.OpSync, Name: "*.wal", Delay: delay})
	begin := time.Now()
	var all []*amqp091.DeferredConfirmation
	for range 12 { // some syncs; not so many bytes that the client, which then cannot send heartbeats either, is held back
		all = append(all, p.publish(t, "q", make([]byte, 1<<20)))
	}
	for _, c := range all {
		confirmed(t, c)
	}
	if took := time.Since(begin); took < delay {
		t.Errorf("confirmed after %v", took)
	}
	n.fault.Clear()
	select {
	case e := <-ended:
		t.Errorf("closed with %v", e)
	default:
	}
}
