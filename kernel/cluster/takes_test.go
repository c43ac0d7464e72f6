package cluster

import (
	"encoding/json"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
)

// TestTakesOfVersions: what a node of an earlier version tells of itself says whose
// clients it takes, and that version can read what this one tells.
func TestTakesOfVersions(t *testing.T) {
	for _, c := range []struct {
		told              string
		amqp, mqtt, kafka bool
	}{
		{`{"Node":"1","Low":true}`, false, false, false},
		{`{"Node":"1","Clients":true}`, true, false, false},
		{`{"Node":"1","Clients":true,"Protocols":["amqp","mqtt","new"]}`, true, true, false},
		{`{"Node":"1","Clients":true,"Protocols":["amqp","mqtt","kafka"]}`, true, true, true},
	} {
		var info Info
		if err := json.Unmarshal([]byte(c.told), &info); err != nil {
			t.Fatal(err)
		}
		m := Member{Protocols: info.taken()}
		if m.Takes("amqp") != c.amqp || m.Takes("mqtt") != c.mqtt || m.Takes("kafka") != c.kafka {
			t.Errorf("%s: amqp %v, mqtt %v, kafka %v", c.told, m.Takes("amqp"), m.Takes("mqtt"), m.Takes("kafka"))
		}
	}
	if m := (&Member{}); !m.Takes("mqtt") {
		t.Error("a node that has not told is taken for one that takes nothing")
	}
}

// TestMembersTellWhatTheyTake: each member knows it of the others.
func TestMembersTellWhatTheyTake(t *testing.T) {
	list := three(t)
	until(t, "all have told", func() bool {
		for _, m := range list[0].node.Members() {
			if !m.Self && (len(m.Protocols) == 0) {
				return false
			}
		}
		return true
	})
	for _, m := range list[0].node.Members() {
		for _, p := range []kernel.Protocol{"amqp", "mqtt", "kafka"} {
			if !m.Takes(p) {
				t.Errorf("%s does not take %s", m.Node, p)
			}
		}
		if !m.Self && m.Takes("new") {
			t.Errorf("%s takes what there is not", m.Node)
		}
	}
}
