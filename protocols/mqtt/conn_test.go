package mqtt

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

func v5(id string) wire.ConnectRequest { return wire.ConnectRequest{Version: wire.V5, ClientID: id} }

// pass lets the time of a synctest bubble go by.
func pass(d time.Duration) { <-time.After(d) }

func v4(id string) wire.ConnectRequest {
	return wire.ConnectRequest{Version: wire.V311, ClientID: id, Clean: true}
}

func TestConnackTellsTheTruth(t *testing.T) {
	r := newRig(t, Limits{KeepAlive: 100})
	req := v5("")
	req.KeepAlive = 300
	_, a := r.connect(req)
	if a.Code != wire.Success || a.SessionPresent || a.MaximumQoS != 2 || !a.RetainAvailable || a.ReceiveMaximum != 4096 ||
		a.MaximumPacketSize != 16<<20 || a.TopicAliasMaximum != 64 || a.SessionExpiry != nil {
		t.Errorf("%+v", a)
	}
	if a.KeepAlive == nil || *a.KeepAlive != 100 {
		t.Errorf("keep alive %v", a.KeepAlive)
	}
	if !strings.HasPrefix(a.AssignedClientID, "auto-") {
		t.Errorf("assigned id %q", a.AssignedClientID)
	}
}

// Every refusal of CONNECT, byte for byte.
func TestConnectRefused(t *testing.T) {
	will := func(qos byte, retain bool) *wire.Will { return &wire.Will{Topic: "w", QoS: qos, Retain: retain} }
	raw := func(s string) []byte { return append([]byte{0x10, byte(len(s))}, s...) }
	edit := func(c wire.ConnectRequest, f func(*wire.ConnectRequest)) []byte { f(&c); return c.Append(nil) }
	cases := []struct {
		name string
		send []byte
		want string // CONNACK without length and properties, or "" for a close without an answer
	}{
		{"MQTT 3.1", raw("\x00\x06MQIsdp\x03\x02\x00\x3c\x00\x01a"), "20 00 01"},
		{"level 3 under the new name", raw("\x00\x04MQTT\x03\x02\x00\x3c\x00\x01a"), "20 00 01"},
		{"level 6", raw("\x00\x04MQTT\x06\x02\x00\x3c\x00\x00\x01a"), "20 00 84"},
		{"another protocol", raw("\x00\x04HTTP\x04\x02\x00\x3c\x00\x01a"), ""},
		{"not CONNECT", []byte{0xC0, 0}, ""},
		{"reserved flag 3.1.1", raw("\x00\x04MQTT\x04\x03\x00\x3c\x00\x01a"), ""},
		{"reserved flag 5", raw("\x00\x04MQTT\x05\x03\x00\x3c\x00\x00\x01a"), "20 00 81"},
		{"empty id, session kept", edit(v4(""), func(c *wire.ConnectRequest) { c.Clean = false }), "20 00 02"},
		{"bad password 3.1.1", edit(v4("a"), func(c *wire.ConnectRequest) { c.HasUser, c.User = true, "u" }), "20 00 04"},
		{"bad password 5", edit(v5("a"), func(c *wire.ConnectRequest) { c.HasUser, c.User = true, "u" }), "20 00 86"},
		{"password without a name", edit(v5("a"), func(c *wire.ConnectRequest) { c.HasPassword = true }), "20 00 86"},
		{"will topic reserved 5", edit(v5("a"), func(c *wire.ConnectRequest) { c.Will = will(0, true); c.Will.Topic = "$share/a/b" }), "20 00 87"},
		{"will topic reserved 3.1.1", edit(v4("a"), func(c *wire.ConnectRequest) { c.Will = will(0, true); c.Will.Topic = "$SYS/x" }), "20 00 05"},
		{"will QoS 3", raw("\x00\x04MQTT\x05\x1e\x00\x3c\x00\x00\x01a\x00\x00\x01w\x00\x00"), "20 00 81"},
		{"auth method", edit(v5("a"), func(c *wire.ConnectRequest) { c.AuthMethod = "SCRAM" }), "20 00 8c"},
		{"auth data without a method", raw("\x00\x04MQTT\x05\x02\x00\x3c\x04\x16\x00\x01x\x00\x01a"), "20 00 82"},
		{"empty auth data without a method", raw("\x00\x04MQTT\x05\x02\x00\x3c\x03\x16\x00\x00\x00\x01a"), "20 00 82"},
		{"client id with NUL", edit(v5("a\x00"), func(*wire.ConnectRequest) {}), "20 00 81"},
		{"receive maximum 0", raw("\x00\x04MQTT\x05\x02\x00\x3c\x03\x21\x00\x00\x00\x01a"), "20 00 82"},
		{"property twice", raw("\x00\x04MQTT\x05\x02\x00\x3c\x06\x21\x00\x01\x21\x00\x01\x00\x01a"), "20 00 82"},
		{"bytes at the end", append([]byte{0x10, 14}, "\x00\x04MQTT\x04\x02\x00\x3c\x00\x01ax"...), ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, Limits{})
			p := r.dial()
			p.send(c.send)
			first, body := p.next()
			got := ""
			if first != 0 {
				got = fmt.Sprintf("%x % x", first, body[:2])
			}
			if c.want != got {
				t.Errorf("got %q %q, want %q", got, body, c.want)
			}
			if first != 0 {
				p.wantEnd(wire.Success)
			}
			if n := len(r.node.messages()); n != 0 {
				t.Errorf("%d messages published", n)
			}
			if n := r.node.counters.Refused.Load(); n != 0 != (strings.Contains(c.name, "password") || c.name == "auth method") {
				t.Errorf("%d refused logins counted", n)
			}
		})
	}
}

// Faults after CONNACK: version 5 is told the reason, 3.1.1 is closed.
func TestFaults(t *testing.T) {
	cases := []struct {
		name string
		only byte // protocol level, 0 = both
		send func(v byte) []byte
		want wire.Code
	}{
		{"QoS 3 publish", 0, func(v byte) []byte { b := publishPacket(v, 2, 1, "t", "x"); b[0] |= 6; return b }, wire.MalformedPacket},
		{"DUP with QoS 0", 0, func(v byte) []byte { b := publishPacket(v, 0, 0, "t", "x"); b[0] |= 8; return b }, wire.MalformedPacket},
		{"packet id 0", 0, func(v byte) []byte { return publishPacket(v, 1, 0, "t", "x") }, wire.ProtocolError},
		{"no packet id", wire.V311, func(v byte) []byte { return []byte{0x32, 3, 0, 1, 't'} }, wire.MalformedPacket},
		{"topic past the end", 0, func(v byte) []byte { return []byte{0x30, 3, 0, 9, 't'} }, wire.MalformedPacket},
		{"empty topic", wire.V5, func(v byte) []byte { return publishPacket(v, 0, 0, "", "x") }, wire.ProtocolError},
		{"empty topic", wire.V311, func(v byte) []byte { return publishPacket(v, 0, 0, "", "x") }, wire.MalformedPacket},
		{"wildcard in topic", 0, func(v byte) []byte { return publishPacket(v, 0, 0, "a/+", "x") }, wire.TopicNameInvalid},
		{"alias 0", wire.V5, func(v byte) []byte { return publishPacket(v, 0, 0, "a", "x", 0x23, 0, 0) }, wire.TopicAliasInvalid},
		{"alias too high", wire.V5, func(v byte) []byte { return publishPacket(v, 0, 0, "a", "x", 0x23, 0, 65) }, wire.TopicAliasInvalid},
		{"alias unknown", wire.V5, func(v byte) []byte { return publishPacket(v, 0, 0, "", "x", 0x23, 0, 9) }, wire.ProtocolError},
		{"subscription id from client", wire.V5, func(v byte) []byte { return publishPacket(v, 0, 0, "a", "x", 0x0B, 1) }, wire.ProtocolError},
		{"duplicate property", wire.V5, func(v byte) []byte { return publishPacket(v, 0, 0, "a", "x", 1, 1, 1, 1) }, wire.ProtocolError},
		{"property of another packet", wire.V5, func(v byte) []byte { return publishPacket(v, 0, 0, "a", "x", 0x21, 0, 1) }, wire.ProtocolError},
		{"unknown property", wire.V5, func(v byte) []byte { return publishPacket(v, 0, 0, "a", "x", 0x7F, 0, 1) }, wire.MalformedPacket},
		{"payload format 2", wire.V5, func(v byte) []byte { return publishPacket(v, 0, 0, "a", "x", 1, 2) }, wire.ProtocolError},
		{"too many user properties", wire.V5, func(v byte) []byte {
			return publishPacket(v, 0, 0, "a", "x", bytes.Repeat([]byte{0x26, 0, 0, 0, 0}, wire.MaxUserProperties+1)...)
		}, wire.PacketTooLarge},
		{"response topic with wildcard", wire.V5, func(v byte) []byte { return publishPacket(v, 0, 0, "a", "x", 8, 0, 1, '#') }, wire.ProtocolError},
		{"five byte length", 0, func(v byte) []byte { return []byte{0x30, 0xFF, 0xFF, 0xFF, 0xFF, 1} }, wire.MalformedPacket},
		{"length not minimal", 0, func(v byte) []byte { return []byte{0x30, 0x80, 0} }, wire.MalformedPacket},
		{"too large", 0, func(v byte) []byte { return []byte{0x30, 0xFF, 0xFF, 0xFF, 0x7F} }, wire.PacketTooLarge},
		{"second CONNECT", 0, func(v byte) []byte { c := v5("b"); c.Version = v; return c.Append(nil) }, wire.ProtocolError},
		{"type 0", 0, func(v byte) []byte { return []byte{0, 0} }, wire.MalformedPacket},
		{"packet of servers", 0, func(v byte) []byte { return []byte{0x20, 0} }, wire.ProtocolError},
		{"PINGREQ flags", 0, func(v byte) []byte { return []byte{0xC1, 0} }, wire.MalformedPacket},
		{"AUTH", 0, func(v byte) []byte { return []byte{0xF0, 0} }, wire.ProtocolError},
		{"SUBSCRIBE without filter", wire.V311, func(v byte) []byte { return []byte{0x82, 2, 0, 1} }, wire.ProtocolError},
		{"SUBSCRIBE without filter", wire.V5, func(v byte) []byte { return []byte{0x82, 3, 0, 1, 0} }, wire.ProtocolError},
		{"SUBSCRIBE flags", 0, func(v byte) []byte { return []byte{0x80, 2, 0, 1} }, wire.MalformedPacket},
		{"SUBSCRIBE without options", wire.V5, func(v byte) []byte { return []byte{0x82, 6, 0, 1, 0, 0, 1, 'a'} }, wire.MalformedPacket},
		{"SUBSCRIBE without options", wire.V311, func(v byte) []byte { return []byte{0x82, 5, 0, 1, 0, 1, 'a'} }, wire.MalformedPacket},
		{"SUBSCRIBE reserved options", wire.V5, func(v byte) []byte { return []byte{0x82, 7, 0, 1, 0, 0, 1, 'a', 0x41} }, wire.MalformedPacket},
		{"SUBSCRIBE retain handling 3", wire.V5, func(v byte) []byte { return []byte{0x82, 7, 0, 1, 0, 0, 1, 'a', 0x31} }, wire.ProtocolError},
		{"SUBSCRIBE QoS 3", wire.V5, func(v byte) []byte { return []byte{0x82, 7, 0, 1, 0, 0, 1, 'a', 3} }, wire.ProtocolError},
		{"SUBSCRIBE packet id 0", wire.V5, func(v byte) []byte { return []byte{0x82, 7, 0, 0, 0, 0, 1, 'a', 1} }, wire.ProtocolError},
		{"SUBSCRIBE identifier 0", wire.V5, func(v byte) []byte { return []byte{0x82, 9, 0, 1, 2, 0x0B, 0, 0, 1, 'a', 1} }, wire.ProtocolError},
		{"bad filter", 0, subscribeTo("a/b#"), wire.TopicFilterInvalid},
		{"# not last", 0, subscribeTo("#/a"), wire.TopicFilterInvalid},
		{"empty filter", 0, subscribeTo(""), wire.TopicFilterInvalid},
		{"share without group", 0, subscribeTo("$share//x"), wire.TopicFilterInvalid},
		{"share without filter", 0, subscribeTo("$share/g"), wire.TopicFilterInvalid},
		{"share with wildcard group", 0, subscribeTo("$share/g+/x"), wire.TopicFilterInvalid},
		{"no local on share", wire.V5, func(v byte) []byte {
			return (&wire.SubscribeRequest{ID: 1, Filters: []wire.Filter{{Name: "$share/g/x", Options: wire.OptionNoLocal}}}).Append(nil, v)
		}, wire.ProtocolError},
		{"too many filters", 0, func(v byte) []byte {
			return (&wire.SubscribeRequest{ID: 1, Filters: slices.Repeat([]wire.Filter{{Name: "a"}}, wire.MaxFilters+1)}).Append(nil, v)
		}, wire.QuotaExceeded},
		{"UNSUBSCRIBE without filter", wire.V5, func(v byte) []byte { return []byte{0xA2, 3, 0, 1, 0} }, wire.ProtocolError},
		{"PUBACK cut short", 0, func(v byte) []byte { return []byte{0x40, 1, 0} }, wire.MalformedPacket},
		{"DISCONNECT raises expiry", wire.V5, func(v byte) []byte { return []byte{0xE0, 7, 0, 5, 0x11, 0, 0, 0, 1} }, wire.ProtocolError},
	}
	for _, c := range cases {
		for _, v := range []byte{wire.V311, wire.V5} {
			if c.only != 0 && c.only != v {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", c.name, v), func(t *testing.T) {
				r := newRig(t, Limits{})
				req := v5("a")
				req.Version, req.Clean = v, true
				p, _ := r.connect(req)
				go func() { _, _ = p.c.Write(c.send(v)) }() // may be cut off half way
				p.wantEnd(c.want)
				if n := len(r.node.messages()); n != 0 {
					t.Errorf("%d messages published", n)
				}
			})
		}
	}
}

func subscribeTo(filter string) func(v byte) []byte {
	return func(v byte) []byte {
		return (&wire.SubscribeRequest{ID: 1, Filters: []wire.Filter{{Name: filter, QoS: 1}}}).Append(nil, v)
	}
}

// PUBACKs come in the order of the publishes, whatever order commits have, and
// not before.
func TestPubackOrder(t *testing.T) {
	r := newRig(t, Limits{})
	r.node.onPublish = func(published) (int, error) { return 1, nil }
	p, _ := r.connect(v5("a"))
	for id := range uint16(3) {
		p.send(publishPacket(wire.V5, 1, id+1, "t", "x"))
	}
	p.send(wire.AppendPingreq(nil))
	p.want(wire.Pingresp) // nothing acknowledged yet
	ms := r.node.messages()
	done := ms[0].done
	done.Completed(ms[2].token, kernel.Result{})
	done.Completed(ms[1].token, kernel.Result{Err: kernel.Errorf(kernel.CodeLimit, "", "", "full")})
	done.Flush()
	p.send(wire.AppendPingreq(nil))
	p.want(wire.Pingresp)
	done.Completed(ms[0].token, kernel.Result{})
	done.Flush()
	for i, want := range []wire.Code{wire.Success, wire.QuotaExceeded, wire.Success} {
		id, code, err := wire.ParseAck(wire.Puback, wire.V5, p.want(wire.Puback))
		if err != nil || id != uint16(i+1) || code != want {
			t.Errorf("PUBACK %d code %x, %v", id, code, err)
		}
	}
}

func TestPubackReasons(t *testing.T) {
	fail := func(c kernel.Code) func(published) (int, error) {
		return func(published) (int, error) { return 0, kernel.Errorf(c, "topic", "t", "no") }
	}
	later := func(c kernel.Code) func(published) (int, error) {
		return func(p published) (int, error) {
			p.done.Completed(p.token, kernel.Result{Err: kernel.Errorf(c, "", "", "?")})
			p.done.Flush()
			return 1, nil
		}
	}
	cases := []struct {
		name string
		on   func(published) (int, error)
		want wire.Code
		ends bool // version 5 as well
	}{
		{"no match", func(p published) (int, error) {
			p.done.Completed(p.token, kernel.Result{Offset: -1})
			p.done.Flush()
			return 0, nil
		}, wire.NoMatchingSubscribers, false},
		{"low disk", fail(kernel.CodeLimit), wire.QuotaExceeded, false},
		{"refused", fail(kernel.CodeAccessRefused), wire.NotAuthorized, false},
		{"too large", fail(kernel.CodeTooLarge), wire.ImplementationError, false},
		{"bad name", fail(kernel.CodeInvalidName), wire.TopicNameInvalid, false},
		{"full", later(kernel.CodeLimit), wire.QuotaExceeded, false},
		{"unknown outcome", later(kernel.CodeUnknown), wire.UnspecifiedError, true},
		{"the node that serves has stepped down", later(kernel.CodeUnavailable), wire.UnspecifiedError, true},
		{"it has let go of the session", later(kernel.CodeFenced), wire.UnspecifiedError, true},
		{"the same, at once", fail(kernel.CodeFenced), wire.UnspecifiedError, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, Limits{})
			r.node.onPublish = c.on
			p, _ := r.connect(v5("a"))
			p.send(publishPacket(wire.V5, 1, 9, "t", "x"))
			if c.ends {
				p.wantEnd(c.want)
			} else if id, code, err := wire.ParseAck(wire.Puback, wire.V5, p.want(wire.Puback)); err != nil || id != 9 || code != c.want {
				t.Errorf("PUBACK %d 0x%x %v", id, code, err)
			}
			p, _ = r.connect(v4("b"))
			p.send(publishPacket(wire.V311, 1, 9, "t", "x"))
			if c.want < wire.UnspecifiedError {
				if id, _, err := wire.ParseAck(wire.Puback, wire.V311, p.want(wire.Puback)); err != nil || id != 9 {
					t.Errorf("PUBACK %d %v", id, err)
				}
			} else {
				p.wantEnd(0)
			}
		})
	}
}

func TestReceiveMaximum(t *testing.T) {
	r := newRig(t, Limits{ReceiveMaximum: 2})
	var held []published
	r.node.onPublish = func(p published) (int, error) { held = append(held, p); return 1, nil }
	p, a := r.connect(v5("a"))
	if a.ReceiveMaximum != 2 {
		t.Fatal(a.ReceiveMaximum)
	}
	for id := range uint16(3) {
		p.send(publishPacket(wire.V5, 1, id+1, "t", "x"))
	}
	p.wantEnd(wire.ReceiveMaximumExceeded)

	held = nil // 3.1.1: not read until there is room
	p, _ = r.connect(v4("b"))
	p.send(publishPacket(wire.V311, 1, 1, "t", "x"))
	p.send(publishPacket(wire.V311, 1, 2, "t", "x"))
	p.send(publishPacket(wire.V311, 1, 3, "t", "x"))
	ms := r.node.messages()
	first := ms[len(ms)-2]
	first.done.Completed(first.token, kernel.Result{})
	first.done.Flush()
	p.want(wire.Puback)
	p.send(wire.AppendPingreq(nil))
	p.want(wire.Pingresp)
	if len(held) != 3 {
		t.Errorf("%d publishes", len(held))
	}
}

func TestWills(t *testing.T) {
	props := wire.AppendUser(wire.AppendText(wire.AppendFlag(nil, 1, 1), wire.PropContentType, "text/plain"), "k", "v")
	willed := func(v byte, delay uint32) wire.ConnectRequest {
		req := wire.ConnectRequest{Version: v, ClientID: "a", Clean: v == wire.V311, SessionExpiry: 100}
		req.Will = &wire.Will{Topic: "will", Payload: []byte("gone"), QoS: 1, Delay: delay}
		if v == wire.V5 {
			req.Will.SetProperties(props)
		}
		return req
	}
	check := func(t *testing.T, r *rig, want int) {
		t.Helper()
		synctest.Wait()
		ms := r.node.messages()
		if len(ms) != want {
			t.Fatalf("%d wills published, want %d", len(ms), want)
		}
		if want > 0 {
			m := ms[0]
			if m.topic != "will" || string(m.rec.Value) != "gone" || m.header("mq.qos") != "1" {
				t.Errorf("%+v", m)
			}
		}
	}
	run := func(name string, f func(t *testing.T, r *rig)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, newRig(t, Limits{})) })
		})
	}
	run("connection lost", func(t *testing.T, r *rig) {
		p, _ := r.connect(willed(wire.V5, 0))
		_ = p.c.Close()
		check(t, r, 1)
		m := r.node.messages()[0]
		if m.header("content-type") != "text/plain" || m.header("mq.utf8") != "1" || m.header("k") != "v" {
			t.Errorf("%+v", m.rec.Headers)
		}
	})
	run("3.1.1 protocol error", func(t *testing.T, r *rig) {
		p, _ := r.connect(willed(wire.V311, 0))
		p.send([]byte{0, 0})
		p.wantEnd(0)
		check(t, r, 1)
	})
	run("normal disconnect", func(t *testing.T, r *rig) {
		p, _ := r.connect(willed(wire.V5, 0))
		p.send(wire.AppendDisconnect(nil, wire.V5, wire.Success, ""))
		p.wantEnd(0)
		check(t, r, 0)
	})
	run("disconnect with will", func(t *testing.T, r *rig) {
		p, _ := r.connect(willed(wire.V5, 0))
		p.send(wire.AppendDisconnect(nil, wire.V5, wire.DisconnectWithWill, ""))
		p.wantEnd(0)
		check(t, r, 1)
	})
	run("delayed", func(t *testing.T, r *rig) {
		p, _ := r.connect(willed(wire.V5, 10))
		_ = p.c.Close()
		check(t, r, 0)
		pass(9 * time.Second)
		check(t, r, 0)
		pass(2 * time.Second)
		check(t, r, 1)
	})
	run("delay ends with the session", func(t *testing.T, r *rig) {
		p, _ := r.connect(willed(wire.V5, 1000))
		_ = p.c.Close()
		pass(101 * time.Second)
		check(t, r, 1)
	})
	run("cancelled by reconnect", func(t *testing.T, r *rig) {
		p, _ := r.connect(willed(wire.V5, 10))
		_ = p.c.Close()
		check(t, r, 0)
		req := willed(wire.V5, 0)
		req.Will = nil
		_, a := r.connect(req)
		if !a.SessionPresent {
			t.Error("session not present")
		}
		pass(20 * time.Second)
		check(t, r, 0)
	})
	run("clean start ends the session", func(t *testing.T, r *rig) {
		p, _ := r.connect(willed(wire.V5, 10))
		_ = p.c.Close()
		check(t, r, 0)
		req := v5("a")
		req.Clean = true
		r.connect(req)
		check(t, r, 1)
	})
	run("taken over", func(t *testing.T, r *rig) {
		p, _ := r.connect(willed(wire.V5, 10))
		go r.connect(v5("a"))
		p.wantEnd(wire.SessionTakenOver)
		check(t, r, 0)
	})
	run("keep alive", func(t *testing.T, r *rig) {
		req := willed(wire.V5, 0)
		req.KeepAlive = 60000 // more than fits a uint16 after multiplication
		p, _ := r.connect(req)
		pass(80_000 * time.Second)
		p.send(wire.AppendPingreq(nil))
		p.want(wire.Pingresp)
		pass(89_000 * time.Second)
		check(t, r, 0)
		p.wantEnd(wire.KeepAliveTimeout)
		check(t, r, 1)
	})
	run("shutdown", func(t *testing.T, r *rig) {
		p, _ := r.connect(willed(wire.V5, 0))
		q, _ := r.connect(wire.ConnectRequest{Version: wire.V5, ClientID: "b", SessionExpiry: 100,
			Will: &wire.Will{Topic: "will", Payload: []byte("gone"), QoS: 1, Delay: 50}})
		_ = q.c.Close()
		go func() { _ = r.srv.Shutdown(context.Background()) }()
		p.wantEnd(wire.ServerShuttingDown)
		check(t, r, 1) // the delayed one is the kernel's
	})
}

func TestConnectTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Limits{})
		p := r.dial()
		p.send([]byte{0x10})
		start := time.Now()
		if first, _ := p.next(); first != 0 {
			t.Errorf("got packet %d", first>>4)
		}
		if d := time.Since(start); d != 10*time.Second {
			t.Errorf("closed after %v", d)
		}
	})
}

func TestShutdownAwaitsCommits(t *testing.T) {
	r := newRig(t, Limits{})
	r.node.onPublish = func(published) (int, error) { return 1, nil }
	p, _ := r.connect(v5("a"))
	p.send(publishPacket(wire.V5, 1, 5, "t", "x"))
	p.send(wire.AppendPingreq(nil))
	p.want(wire.Pingresp)
	done := make(chan error)
	go func() { done <- r.srv.Shutdown(context.Background()) }()
	m := r.node.messages()[0]
	m.done.Completed(m.token, kernel.Result{})
	m.done.Flush()
	p.want(wire.Puback)
	p.wantEnd(wire.ServerShuttingDown)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
