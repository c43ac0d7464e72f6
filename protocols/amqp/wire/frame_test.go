package wire

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

func TestFrameErrors(t *testing.T) {
	cases := []struct{ name, wire, text string }{
		{"bad end", "01 0001 00000001 07 cd", "type 1, all octets = <<7>>: {invalid_frame_end_marker,205}"},
		{"too large", "03 0001 00001001", "type 3, all octets = <<>>: {frame_too_large,4097,4088}"},
		{"huge", "01 0000 ffffffff", "type 1, all octets = <<>>: {frame_too_large,4294967295,4088}"},
		{"unknown type", "09 0000 00000002 0102 ce", "type 9, all octets = <<1,2>>: unknown_frame"},
		{"other protocol", "16 0301 00ee0100 00ea0303", "type 22, all octets = <<0,234,3,3>>: unknown_frame"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			f := NewFrameReader(bytes.NewReader(unhex(t, tc.wire)), 4096)
			_, err := f.Next()
			fe, ok := errors.AsType[*FrameError](err)
			if !ok || fe.Error() != tc.text {
				t.Errorf("%v", err)
			}
			if len(f.buf) > defaultBuffer {
				t.Errorf("buffer of %d bytes", len(f.buf))
			}
		})
	}
	long := (&FrameError{Type: 1, Octets: make([]byte, 20), Problem: "x"}).Error()
	if !strings.HasPrefix(long, "type 1, first 16 octets = <<0,0,") {
		t.Error(long)
	}
}

func TestFrameEnds(t *testing.T) {
	whole := AppendMethod(nil, 1, &ChannelOpen{})
	for n := range whole {
		_, err := NewFrameReader(bytes.NewReader(whole[:n]), 4096).Next()
		want := io.ErrUnexpectedEOF
		if n == 0 {
			want = io.EOF
		}
		if err != want {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
	f := NewFrameReader(strings.NewReader("GET / HTTP"), 4096)
	if b, err := f.ReadRaw(8); err != nil || string(b) != "GET / HT" {
		t.Errorf("%q, %v", b, err)
	}
}

// A stream of frames of all sizes comes back whatever the sizes of the reads,
// and payloads hold while Ready says so.
func TestFrameStream(t *testing.T) {
	var stream []byte
	var want [][]byte
	for i := range 200 {
		body := bytes.Repeat([]byte{byte(i)}, i*i%5000)
		m := &BasicPublish{Exchange: "e", RoutingKey: strings.Repeat("k", i)}
		stream = AppendPublish(stream, uint16(i+1), m, &Properties{}, body, 4096)
		stream = AppendHeartbeat(stream)
		want = append(want, body)
	}
	readers := map[string]func(io.Reader) io.Reader{
		"whole": func(r io.Reader) io.Reader { return r }, "bytewise": iotest.OneByteReader, "half": iotest.HalfReader,
	}
	for name, wrap := range readers {
		t.Run(name, func(t *testing.T) {
			f := NewFrameReader(wrap(bytes.NewReader(stream)), 4096)
			var bodies [][]byte
			var held, copies [][]byte
			for {
				if !f.Ready() {
					for i := range held {
						if !bytes.Equal(held[i], copies[i]) {
							t.Fatal("a payload changed while it was to hold")
						}
					}
					held, copies = nil, nil
				}
				fr, err := f.Next()
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				held, copies = append(held, fr.Payload), append(copies, bytes.Clone(fr.Payload))
				switch fr.Type {
				case FrameHeader:
					bodies = append(bodies, []byte{})
				case FrameBody:
					bodies[len(bodies)-1] = append(bodies[len(bodies)-1], fr.Payload...)
				}
			}
			if len(bodies) != len(want) {
				t.Fatalf("%d bodies", len(bodies))
			}
			for i := range want {
				if !bytes.Equal(bodies[i], want[i]) {
					t.Errorf("body %d: %d bytes, want %d", i, len(bodies[i]), len(want[i]))
				}
			}
		})
	}
}

func fullProperties() Properties {
	return Properties{
		Flags: ^reservedFlags, ContentType: []byte("text/plain"), ContentEncoding: []byte("gzip"), Headers: []byte("\x01kV"),
		DeliveryMode: 2, Priority: 9, CorrelationID: []byte{0xff, 0}, ReplyTo: []byte("r"), Expiration: []byte("60000"),
		MessageID: []byte("m"), Timestamp: 1700000000, Type: []byte("t"), UserID: []byte("guest"), AppID: []byte("a"), ClusterID: []byte("c"),
	}
}

func TestContent(t *testing.T) {
	p := fullProperties()
	got := AppendContent(nil, 5, &p, []byte("hello"), 4096)
	want := unhex(t, "02 0005 00000055 003c 0000 0000000000000005 fffc"+
		" 0a 746578742f706c61696e 04 677a6970 00000003 016b56 02 09 02 ff00 01 72 05 3630303030 01 6d"+
		" 000000006553f100 01 74 05 6775657374 01 61 01 63 ce"+
		" 03 0005 00000005 68656c6c6f ce")
	want[6] = byte(len(want) - 13 - FrameOverhead) // size of the header frame
	if !bytes.Equal(got, want) {
		t.Errorf("encoded %x\nwant    %x", got, want)
	}
	f := NewFrameReader(bytes.NewReader(got), 4096)
	fr, err := f.Next()
	if err != nil {
		t.Fatal(err)
	}
	var back Properties
	class, size, err := ParseHeader(fr.Payload, &back)
	if err != nil || class != ClassBasic || size != 5 || !reflect.DeepEqual(back, p) {
		t.Errorf("parsed %v %v %+v, %v", class, size, back, err)
	}
	for cut := range fr.Payload {
		if _, _, err := ParseHeader(fr.Payload[:cut], &back); !errors.Is(err, ErrSyntax) {
			t.Errorf("cut to %d: %v", cut, err)
		}
	}
	split := AppendContent(nil, 1, &Properties{}, make([]byte, 4088*2+1), 4096)
	if n := bytes.Count(split, []byte{0xce}); n != 4 { // header and three body frames
		t.Errorf("%d frames", n)
	}
}

func TestHostileHeaders(t *testing.T) {
	var p Properties
	for name, wire := range map[string]string{
		"more flags announced": "003c 0000 0000000000000000 0001 0000",
		"bytes left over":      "003c 0000 0000000000000000 0000 00",
		"table not whole":      "003c 0000 0000000000000000 2000 00000002 016b",
		"table of bad types":   "003c 0000 0000000000000000 2000 00000003 016b00",
	} {
		if _, _, err := ParseHeader(unhex(t, wire), &p); !errors.Is(err, ErrSyntax) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, size, err := ParseHeader(unhex(t, "003c 0000 8000000000000000 0000"), &p)
	if err != nil || size != 1<<63 {
		t.Errorf("a body of 2^63: %d, %v", size, err)
	}
}
