package cluster

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/integration/harness"
)

// dialRaw connects to an address, for a time.
func dialRaw(t *testing.T, addr string, hello string) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, harness.Patience)
	harness.Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	harness.Must(t, c.SetDeadline(time.Now().Add(2*harness.Patience)))
	_, err = io.WriteString(c, hello)
	harness.Must(t, err)
	return c
}

// connectPacket is MQTT 5's CONNECT of a client.
func connectPacket(id string) string {
	field := func(s string) string { return string([]byte{0, byte(len(s))}) + s }
	rest := field("MQTT") + "\x05\xc2\x00\x3c\x00" + field(id) + field(harness.ClusterUser) + field(harness.ClusterPassword)
	return string([]byte{0x10, byte(len(rest))}) + rest
}

// TestLastWords: a client that goes on sending learns why its connection ends, by
// whatever node it is connected.
func TestLastWords(t *testing.T) {
	c := harness.StartCluster(t, harness.ClusterConfig{Nodes: 3})
	flood := []byte("\x30\xc4\x3e\x00\x01f\x00" + strings.Repeat("x", 8000)) // PUBLISH with QoS 0
	for round := range 10 {
		for _, n := range c.Nodes {
			id := fmt.Sprintf("twice-%d-%d", n.ID, round)
			first := dialRaw(t, n.MQTT, connectPacket(id))
			_, err := io.ReadFull(first, make([]byte, 4))
			harness.Must(t, err)
			flooding := make(chan struct{})
			go func() {
				defer close(flooding)
				for {
					if _, err := first.Write(flood); err != nil {
						return
					}
				}
			}()
			second := dialRaw(t, n.MQTT, connectPacket(id))
			said, err := io.ReadAll(first)
			if !strings.Contains(string(said), "session taken over") {
				t.Errorf("node %d: %q %v", n.ID, said[max(len(said)-100, 0):], err)
			}
			_, _ = first.Close(), second.Close()
			<-flooding
		}
	}
}

// TestEndedConnectionsLeave: a client that stays when its connection has been ended
// takes no place for long, by whatever node it is connected.
func TestEndedConnectionsLeave(t *testing.T) {
	c := harness.StartCluster(t, harness.ClusterConfig{Nodes: 3})
	for _, n := range c.Nodes {
		for _, addr := range []string{n.AMQP, n.MQTT, n.Kafka} {
			t.Run(addr, func(t *testing.T) {
				t.Parallel()
				conn := dialRaw(t, addr, strings.Repeat("\xff", 100))
				_, err := io.Copy(io.Discard, conn)
				if errors.Is(err, os.ErrDeadlineExceeded) {
					t.Fatalf("node %d keeps a client that talks nonsense", n.ID)
				}
				// A connection that is gone answers what is sent with a reset.
				harness.Must(t, conn.SetDeadline(time.Now().Add(harness.Patience)))
				for err = nil; err == nil; pause(t.Context(), 50*time.Millisecond) {
					_, err = conn.Write([]byte{0})
				}
				if errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("node %d stays open for a client whose connection has ended", n.ID)
				}
			})
		}
	}
}

// TestListenersOff: a node without listeners serves the clients of those that have some.
func TestListenersOff(t *testing.T) {
	c := harness.StartCluster(t, harness.ClusterConfig{Nodes: 3})
	quiet, edge := c.Nodes[2], c.Nodes[0]
	_, err := quiet.Stop()
	harness.Must(t, err)
	quiet.AMQP, quiet.MQTT, quiet.Kafka = "off", "off", "off"
	harness.Must(t, quiet.Run())
	harness.Must(t, c.Whole(healed))
	harness.Must(t, quiet.Lead())
	for _, client := range []struct{ addr, hello string }{
		{edge.AMQP, "AMQP\x00\x00\x09\x01"},
		{edge.MQTT, connectPacket("one")},
		{edge.Kafka, "\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff"}, // ApiVersions
	} {
		if _, err := io.ReadFull(dialRaw(t, client.addr, client.hello), make([]byte, 4)); err != nil {
			t.Errorf("%q: %v", client.hello, err)
		}
	}
	if leader, err := c.Leader(healed); err != nil || leader != quiet {
		t.Errorf("the node without listeners does not serve: %v", err)
	}
}
