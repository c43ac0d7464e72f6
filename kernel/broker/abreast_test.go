package broker

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel"
)

// TestLoginThatNobodyCanJudge: a node that is started alone after all were lost does not
// call credentials wrong, and says so once it has caught up.
func TestLoginThatNobodyCanJudge(t *testing.T) {
	dirs, at, peers := threePeers(t)
	whoServes(t, peers, 3)
	for _, p := range peers {
		p.end(t)
	}
	out, from := &journal{}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}
	n, err := OpenNode(soon(t), Config{DataDir: dirs[1], NodeID: "2", Logger: zerolog.New(out), Cluster: Cluster{Listen: at[1], Heartbeat: time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	login := func(user, password string) kernel.Code {
		_, err := n.Doorman().Login(t.Context(), user, password, from)
		return kernel.CodeOf(err)
	}
	if n.Abreast() == nil {
		t.Error("it says that it has caught up")
	}
	if _, err := n.Doorman().Login(t.Context(), "guest", "guest", from); err != nil {
		t.Errorf("a user it has: %v", err)
	}
	for _, user := range []string{"guest", "made-elsewhere"} {
		if got := login(user, "wrong"); got != kernel.CodeUnavailable {
			t.Errorf("%s: %v", user, got)
		}
	}
	if said := out.String(); strings.Contains(said, "login refused") {
		t.Errorf("the log says %s", said)
	}
	again := openPeer(t, dirs[0], "1", at[0], "")
	defer again.end(t)
	limit := time.Now().Add(patience)
	for n.Abreast() != nil {
		if time.Now().After(limit) {
			t.Fatal("it does not catch up")
		}
		select {
		case <-n.Changed():
		case <-time.After(10 * time.Millisecond):
		}
	}
	if got := login("made-elsewhere", "wrong"); got != kernel.CodeAccessRefused {
		t.Errorf("with a leader: %v", got)
	}
}
