package pressure

import (
	"os"
	"strconv"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
)

// TestRow45MemoryAlarm: a flood of messages that live in memory raises the alarm
// long before the process is killed for its memory; publishers of all protocols are
// held or refused, consumers drain, and the alarm ends.
func TestRow45MemoryAlarm(t *testing.T) {
	const limit = 192 << 20
	b := harness.Start(t, "--memory-limit", "192MiB", "--memory-volatile", "4GiB")
	p := newProducer(t, b.Addresses)
	_, err := p.ch.QueueDeclare("flood", false, false, false, false, nil)
	harness.Must(t, err)
	harness.Declare(t, p.ch, "bound", "a.b")
	v5 := dialV5(t, b.Addresses)
	t.Cleanup(b.Kill) // before the clients take their leave, for which a held publisher waits
	const most = 1000 // MiB
	body := make([]byte, 1<<20)
	var sent []*amqp.DeferredConfirmation
	for told := false; !told && len(sent) < most; {
		sent = append(sent, p.publish(t, "flood", body))
		select {
		case got := <-p.blocked:
			told = true
			if !got.Active || got.Reason != "low on memory" {
				t.Errorf("told %+v", got)
			}
		default:
		}
		if n := len(sent) - 2; n >= 0 && !told { // as a client that waits for its confirms
			select {
			case <-sent[n].Done():
			case got := <-p.blocked:
				told = true
				if !got.Active {
					t.Errorf("told %+v", got)
				}
			}
		}
	}
	if len(sent) == most {
		t.Fatal("no alarm")
	}
	if !alarmed(t, b.Addresses) {
		t.Error("the health check knows of no alarm")
	}
	if used := resident(t, b.PID()); used > 2*limit {
		t.Errorf("%d MiB are resident, the limit is %d MiB", used>>20, limit>>20)
	}
	held := p.publish(t, "flood", []byte("held"))
	if code := publishV5(t, v5, "a/b", 1); code != 0x97 {
		t.Errorf("MQTT 5: %#x", code)
	}
	refusedV4(t, b.Addresses, "a/b")
	refusedKafka(t, b.Addresses, "log")
	patient := patientKafka(t, b.Addresses, "log")
	unconfirmed(t, held)

	_, ch := b.DialAMQP(t)
	harness.Must(t, ch.Qos(10, 0, false))
	from, err := ch.Consume("flood", "", false, false, false, false, nil)
	harness.Must(t, err)
	drain(t, from, len(sent)+1) // the last ones are stored when the alarm has ended
	if got := harness.Receive(t, p.blocked); got.Active {
		t.Errorf("told %+v", got)
	}
	confirmed(t, held)
	harness.Must(t, harness.Receive(t, patient))
	harness.Wait(t, harness.Patience, "the end of the alarm", func() bool { return !alarmed(t, b.Addresses) })
}

// resident returns the resident memory of a process in bytes.
func resident(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		t.Skip("there is no /proc")
	}
	pages, err := strconv.ParseInt(strings.Fields(string(b))[1], 10, 64)
	harness.Must(t, err)
	return pages * int64(os.Getpagesize())
}
