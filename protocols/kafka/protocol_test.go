package kafka

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/kernel"
)

// Every version of every API served decodes, is answered, and the answer
// decodes.
func TestEveryVersionIsAnswered(t *testing.T) {
	addr, _ := start(t, newFake(), nil)
	for key, a := range apis {
		if key == keySASLAuthenticate || key == keyProduce || key == keySASLHandshake {
			continue // their own tests
		}
		for v := a.min; v <= a.max; v++ {
			p := dial(t, addr)
			req := kmsg.RequestForKey(key)
			req.SetVersion(v)
			ask[kmsg.Response](p, req)
			_ = p.nc.Close()
		}
	}
}

func TestApiVersions(t *testing.T) {
	addr, _ := start(t, newFake(), nil)
	p := dial(t, addr)
	for v := int16(0); v <= 4; v++ {
		req := kmsg.NewPtrApiVersionsRequest()
		req.Version = v
		if resp := ask[*kmsg.ApiVersionsResponse](p, req); resp.ErrorCode != 0 || len(resp.ApiKeys) != len(apis) {
			t.Errorf("version %d: error %d, %d keys", v, resp.ErrorCode, len(resp.ApiKeys))
		}
	}
	// A newer version is answered in version 0, whatever its body (KIP-511).
	newer := kmsg.NewPtrApiVersionsRequest()
	newer.Version = 5
	correlation := p.send(newer)
	old := kmsg.NewPtrApiVersionsResponse()
	p.receive(correlation, old)
	if old.ErrorCode != kerr.UnsupportedVersion.Code {
		t.Errorf("error %d, want 35", old.ErrorCode)
	}
	ranges := map[int16][2]int16{}
	for _, k := range old.ApiKeys {
		ranges[k.ApiKey] = [2]int16{k.MinVersion, k.MaxVersion}
	}
	for key, want := range map[int16][2]int16{0: {0, 13}, 1: {4, 18}, 3: {0, 13}, 11: {0, 9}, 17: {0, 1}, 18: {0, 4}, 22: {0, 5}} {
		if ranges[key] != want {
			t.Errorf("key %d: range %v, want %v", key, ranges[key], want)
		}
	}
}

// Rows 36 to 38 of the fault list: what breaks the framing closes the
// connection, without an answer and without an allocation of the size claimed.
func TestHostileFrames(t *testing.T) {
	frame := func(key, version int16, body ...byte) []byte {
		b := binary.BigEndian.AppendUint32(nil, uint32(len(body)+10))
		b = binary.BigEndian.AppendUint16(b, uint16(key))
		b = binary.BigEndian.AppendUint16(b, uint16(version))
		b = append(b, 0, 0, 0, 1, 0xff, 0xff) // correlation, null client id
		return append(b, body...)
	}
	addr, _ := start(t, newFake(), nil)
	for name, b := range map[string][]byte{
		"size 0":                     {0, 0, 0, 0},
		"size -1":                    {0xff, 0xff, 0xff, 0xff},
		"size beyond the limit":      {0x7f, 0xff, 0xff, 0xff},
		"no room for a header":       {0, 0, 0, 3, 0, 3, 0},
		"client id longer than all":  {0, 0, 0, 10, 0, 3, 0, 0, 0, 0, 0, 1, 0x7f, 0xff},
		"unknown key":                frame(999, 0),
		"negative key":               frame(-1, 0),
		"unserved key":               frame(24, 0),
		"version too high":           frame(3, 99),
		"version too low":            frame(0, 2),
		"negative version":           frame(18, -1),
		"array of 2^31-1":            frame(3, 0, 0x7f, 0xff, 0xff, 0xff),
		"array of 2^28 in 40 bytes":  frame(3, 0, append([]byte{0x10, 0, 0, 0}, make([]byte, 40)...)...),
		"string length -5":           frame(3, 0, 0, 0, 0, 1, 0xff, 0xfb),
		"truncated varint":           frame(3, 9, 0, 0xff, 0xff),
		"cut body":                   frame(1, 11, 0, 0),
		"endless tags in the header": frame(3, 9, 0xff, 0xff, 0xff, 0xff, 0x0f),
	} {
		t.Run(name, func(t *testing.T) {
			p := dial(t, addr)
			p.write(b)
			p.wantClosed()
		})
	}
}

// A large first request is for those who may be anonymous.
func TestLargeFirstRequest(t *testing.T) {
	n := newFake()
	addr, _ := start(t, n, nil)
	dial(t, addr).createTopic("t", 1)
	large := produceRequest(9, "t", [16]byte{}, -1, makeBatch(strings.Repeat("x", 900<<10)))
	if got := ask[*kmsg.ProduceResponse](dial(t, addr), large).Topics[0].Partitions[0]; got.ErrorCode != 0 {
		t.Errorf("produce: %v", kerr.ErrorForCode(got.ErrorCode))
	}
	private := newFake()
	private.closed = true
	addr, _ = start(t, private, nil)
	p := dial(t, addr)
	p.write(binary.BigEndian.AppendUint32(nil, maxEarlyFrame+1)) // refused on its size alone
	p.wantClosed()
}

func TestUnknownTagsAreSkipped(t *testing.T) {
	addr, _ := start(t, newFake(), nil)
	p := dial(t, addr)
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 12
	req.UnknownTags.Set(77, []byte("from the future"))
	resp := ask[*kmsg.MetadataResponse](p, req)
	if len(resp.Brokers) != 1 || *resp.ClusterID != "test-cluster" || resp.ControllerID != 3 {
		t.Errorf("answer %+v", resp)
	}
	host, port := resp.Brokers[0].Host, resp.Brokers[0].Port
	if got := fmt.Sprintf("%s:%d", host, port); got != addr {
		t.Errorf("advertised %s, connected to %s", got, addr)
	}
}

func TestAdvertise(t *testing.T) {
	addr, _ := start(t, newFake(), func(c *Config) { c.Advertise = "kafka.example:19092" })
	p := dial(t, addr)
	resp := ask[*kmsg.MetadataResponse](p, kmsg.NewPtrMetadataRequest())
	if b := resp.Brokers[0]; b.Host != "kafka.example" || b.Port != 19092 {
		t.Errorf("advertised %s:%d", b.Host, b.Port)
	}
	for _, bad := range []string{"0.0.0.0:9092", "[::]:9092", ":9092", "host", "host:0", "host:99999"} {
		if _, err := newServer(newFake(), Config{Advertise: bad}); err == nil {
			t.Errorf("%q may be advertised", bad)
		}
	}
}

// Requests are answered in their order, though a later one is ready earlier.
func TestPipelining(t *testing.T) {
	n := newFake()
	n.hold = make(chan struct{})
	addr, _ := start(t, n, nil)
	p := dial(t, addr)
	p.createTopic("t", 1)
	var sent []int32
	for i := range 3 {
		sent = append(sent, p.send(produceRequest(9, "t", [16]byte{}, -1, makeBatch(fmt.Sprint(i)))))
	}
	meta := p.send(kmsg.NewPtrMetadataRequest())
	close(n.hold) // only now does any produce complete
	for _, correlation := range sent {
		resp := kmsg.NewPtrProduceResponse()
		resp.Version = 9
		p.receive(correlation, resp)
		if code := resp.Topics[0].Partitions[0].ErrorCode; code != 0 {
			t.Errorf("produce: %v", kerr.ErrorForCode(code))
		}
	}
	p.receive(meta, kmsg.NewPtrMetadataResponse())
}

func TestSASL(t *testing.T) {
	n := newFake()
	n.closed = true
	addr, _ := start(t, n, nil)
	handshake := func(p *peer, version int16, mechanism string) *kmsg.SASLHandshakeResponse {
		req := kmsg.NewPtrSASLHandshakeRequest()
		req.Version, req.Mechanism = version, mechanism
		return ask[*kmsg.SASLHandshakeResponse](p, req)
	}
	authenticate := func(p *peer, msg string) *kmsg.SASLAuthenticateResponse {
		req := kmsg.NewPtrSASLAuthenticateRequest()
		req.Version, req.SASLAuthBytes = 2, []byte(msg)
		return ask[*kmsg.SASLAuthenticateResponse](p, req)
	}
	t.Run("anonymous access refused", func(t *testing.T) {
		p := dial(t, addr)
		ask[*kmsg.ApiVersionsResponse](p, kmsg.NewPtrApiVersionsRequest())
		p.send(kmsg.NewPtrMetadataRequest())
		p.wantClosed()
	})
	t.Run("plain", func(t *testing.T) {
		p := dial(t, addr)
		if resp := handshake(p, 1, "SCRAM-SHA-1"); resp.ErrorCode != kerr.UnsupportedSaslMechanism.Code || !slices.Equal(resp.SupportedMechanisms, []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}) {
			t.Errorf("answer %+v", resp)
		}
		if resp := authenticate(p, "\x00guest\x00guest"); resp.ErrorCode != kerr.IllegalSaslState.Code {
			t.Errorf("without a mechanism: error %d", resp.ErrorCode)
		}
		if resp := handshake(p, 1, "PLAIN"); resp.ErrorCode != 0 || !slices.Equal(resp.SupportedMechanisms, []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}) {
			t.Errorf("answer %+v", resp)
		}
		if resp := authenticate(p, "\x00guest\x00guest"); resp.ErrorCode != 0 {
			t.Fatalf("error %d", resp.ErrorCode)
		}
		ask[*kmsg.MetadataResponse](p, kmsg.NewPtrMetadataRequest())
		if resp := handshake(p, 1, "PLAIN"); resp.ErrorCode != kerr.IllegalSaslState.Code {
			t.Errorf("a second time: error %d", resp.ErrorCode)
		}
	})
	for name, msg := range map[string]string{
		"wrong password": "\x00guest\x00wrong", "other authorization id": "root\x00guest\x00guest", "malformed": "guest",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := dial(t, addr)
			handshake(p, 1, "PLAIN")
			if resp := authenticate(p, msg); resp.ErrorCode != kerr.SaslAuthenticationFailed.Code {
				t.Errorf("error %d", resp.ErrorCode)
			}
			p.wantClosed()
			if n.counters.Refused.Load() == 0 {
				t.Error("the refused login is not counted")
			}
		})
	}
	t.Run("another request in the midst", func(t *testing.T) {
		addr, _ := start(t, newFake(), nil) // which admits anonymous peers
		p := dial(t, addr)
		handshake(p, 1, "PLAIN")
		p.send(kmsg.NewPtrMetadataRequest())
		p.wantClosed()
	})
	t.Run("bare", func(t *testing.T) {
		p := dial(t, addr)
		handshake(p, 0, "PLAIN")
		msg := "\x00guest\x00guest"
		p.write(append(binary.BigEndian.AppendUint32(nil, uint32(len(msg))), msg...))
		if b := p.frame(); len(b) != 0 {
			t.Errorf("answered %q", b)
		}
		ask[*kmsg.MetadataResponse](p, kmsg.NewPtrMetadataRequest())
	})
}

// A peer that claims much and sends little costs little.
func TestFrameGrowsWithWhatArrives(t *testing.T) {
	r := frameReader{src: bytes.NewReader(make([]byte, 100_000)), arriving: func() {}}
	if _, err := r.body(maxFrame); err == nil {
		t.Fatal("a cut frame was read")
	}
	body := make([]byte, 300_000)
	for i := range body {
		body[i] = byte(i)
	}
	r = frameReader{src: bytes.NewReader(body), arriving: func() {}}
	got, err := r.body(len(body))
	if err != nil || !bytes.Equal(got, body) || cap(got) > len(body) {
		t.Errorf("read %d bytes in %d, error %v", len(got), cap(got), err)
	}
	r = frameReader{src: bytes.NewReader(nil), arriving: func() {}}
	if _, err := r.body(maxFrame); err == nil || cap(r.buf) > firstChunk {
		t.Errorf("error %v; %d bytes kept for a claim", err, cap(r.buf))
	}
}

// Arrays of the smallest elements are refused before they are decoded.
// TestLowDisk: producers are told to try again, and why.
func TestLowDisk(t *testing.T) {
	n := newFake()
	addr, _ := start(t, n, nil)
	p := dial(t, addr)
	p.createTopic("t", 1)
	for _, c := range []struct {
		err  *kernel.Error
		want int16
	}{
		{kernel.Errorf(kernel.CodeLimit, "", "", "the disk is low"), kerr.KafkaStorageError.Code},
		{kernel.Errorf(kernel.CodeUnavailable, "", "", "no leader"), kerr.NotLeaderForPartition.Code},
	} {
		n.refuse = c.err
		r := p.produce("t", makeBatch("x"))
		if r.ErrorCode != c.want || r.ErrorMessage == nil || *r.ErrorMessage != c.err.Error() || r.BaseOffset != -1 {
			t.Errorf("%v: answered %+v", c.err, r)
		}
	}
	n.refuse = nil
	if r := p.produce("t", makeBatch("x")); r.ErrorCode != 0 || r.BaseOffset != 0 {
		t.Errorf("afterwards: %+v", r)
	}
}

// TestDecodedSizes: what large requests may take is counted before they are decoded.
func TestDecodedSizes(t *testing.T) {
	for _, c := range []struct {
		key  int16
		size int
		want int64
	}{
		{3, cheapFrame, 0}, {3, cheapFrame + 1, 50 * (cheapFrame + 1)}, {19, maxPlainFrame, 50 << 20}, {keyJoinGroup, maxGroupFrame, decodedMemory}, {keyProduce, maxFrame, 0},
	} {
		if got := decodedSize(c.key, c.size); got != c.want || got > decodedMemory {
			t.Errorf("key %d, %d bytes: %d, want %d", c.key, c.size, got, c.want)
		}
	}
}

func TestProduceArraysAreBounded(t *testing.T) {
	for v := int16(3); v <= 13; v++ {
		good := produceRequest(v, "t", [16]byte{1}, -1, makeBatch("x"))
		if err := checkProduce(v, good.AppendTo(nil)); err != nil {
			t.Errorf("version %d: %v", v, err)
		}
	}
	many := kmsg.NewPtrProduceRequest()
	many.Version = 9
	many.Topics = make([]kmsg.ProduceRequestTopic, maxProduceParts+1)
	if err := checkProduce(9, many.AppendTo(nil)); err == nil {
		t.Error("too many topics were accepted")
	}
	many.Topics = many.Topics[:1]
	many.Topics[0].Partitions = make([]kmsg.ProduceRequestTopicPartition, maxProduceParts)
	if err := checkProduce(9, many.AppendTo(nil)); err == nil {
		t.Error("too many partitions were accepted")
	}
}

func FuzzHeader(f *testing.F) {
	f.Add([]byte{0, 18, 0, 3, 0, 0, 0, 1, 0, 1, 'x', 0})
	f.Add([]byte{0, 0, 0, 9, 0, 0, 0, 1, 0xff, 0xff, 0})
	for key, a := range apis {
		for _, v := range []int16{a.min, a.max} {
			req := kmsg.RequestForKey(key)
			req.SetVersion(v)
			f.Add(kmsg.NewRequestFormatter().AppendRequest(nil, req, 1)[4:])
		}
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		h, rest, err := parseHeader(frame)
		if err != nil {
			return
		}
		a, ok := apis[h.key]
		if !ok || h.version < a.min || h.version > a.max {
			return
		}
		req := kmsg.RequestForKey(h.key)
		req.SetVersion(h.version)
		if req.IsFlexible() {
			if rest, err = skipTags(rest); err != nil {
				return
			}
		}
		if h.key == keyProduce && checkProduce(h.version, rest) != nil {
			if req.ReadFrom(rest) == nil {
				t.Fatalf("%x decodes and was refused", rest)
			}
			return
		}
		_ = req.ReadFrom(rest)
	})
}
