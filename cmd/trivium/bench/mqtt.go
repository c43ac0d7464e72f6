package bench

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// MQTT 3.1.1 packet types, first byte.
const (
	mqttConnect, mqttConnack     = 0x10, 0x20
	mqttPublish, mqttPuback      = 0x30, 0x40
	mqttSubscribe, mqttSuback    = 0x82, 0x90
	mqttPublishQoS1, mqttPingReq = 0x32, 0xC0
)

// packetIDs is how many packet identifiers a publisher cycles through.
const packetIDs = 65535

// mqttClient is one MQTT 3.1.1 connection.
type mqttClient struct {
	conn net.Conn
	r    *bufio.Reader
	buf  []byte
}

func dialMQTT(addr, clientID, user, password string, clean bool) (*mqttClient, error) {
	conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	c := &mqttClient{conn: conn, r: bufio.NewReaderSize(conn, 256<<10)}
	var flags byte
	body := mqttString(nil, clientID)
	if clean {
		flags |= 0x02
	}
	if user != "" {
		flags |= 0xC0
		body = mqttString(mqttString(body, user), password)
	}
	head := append(mqttString(nil, "MQTT"), 4, flags, 0, 0) // keep alive off
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	defer conn.SetDeadline(time.Time{})
	p, err := c.call(mqttConnect, append(head, body...), mqttConnack)
	if err == nil && (len(p) < 2 || p[1] != 0) {
		err = fmt.Errorf("CONNACK refuses: % x", p)
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("MQTT handshake: %w", err)
	}
	return c, nil
}

func mqttString(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
}

// appendPacket appends a packet with its remaining length.
func appendPacket(b []byte, first byte, body []byte) []byte {
	b = append(b, first)
	return append(binary.AppendUvarint(b, uint64(len(body))), body...)
}

// packet reads the next packet. The body is valid until the next call.
func (c *mqttClient) packet() (first byte, body []byte, err error) {
	if first, err = c.r.ReadByte(); err != nil {
		return 0, nil, err
	}
	n, err := binary.ReadUvarint(c.r)
	if err != nil || n > 1<<28 {
		return 0, nil, errors.Join(fmt.Errorf("bad packet length %d", n), err)
	}
	if cap(c.buf) < int(n) {
		c.buf = make([]byte, n)
	}
	c.buf = c.buf[:n]
	_, err = io.ReadFull(c.r, c.buf)
	return first, c.buf, err
}

func (c *mqttClient) call(first byte, body []byte, reply byte) ([]byte, error) {
	if _, err := c.conn.Write(appendPacket(nil, first, body)); err != nil {
		return nil, err
	}
	for {
		got, p, err := c.packet()
		if err != nil || got&0xF0 == reply {
			return p, err
		}
	}
}

func (c *mqttClient) subscribe(filter string, qos byte) error {
	body := append(mqttString([]byte{0, 1}, filter), qos)
	p, err := c.call(mqttSubscribe, body, mqttSuback)
	if err == nil && (len(p) < 3 || p[2] > 2) {
		err = fmt.Errorf("SUBACK refuses: % x", p)
	}
	return err
}

// mqttPublication is a pre-encoded QoS 1 PUBLISH.
type mqttPublication struct {
	packet  []byte
	id      int // where the packet identifier stands
	payload int
}

func newMQTTPublication(topic string, size int) *mqttPublication {
	body := append(mqttString(nil, topic), 0, 0)
	atID, atPayload := len(body)-2, len(body)
	body = append(body, make([]byte, size)...)
	p := appendPacket(nil, mqttPublishQoS1, body)
	shift := len(p) - len(body)
	return &mqttPublication{packet: p, id: atID + shift, payload: atPayload + shift}
}

func (p *mqttPublication) append(b []byte, publisher uint32, seq uint64) []byte {
	binary.BigEndian.PutUint16(p.packet[p.id:], uint16(seq%packetIDs+1))
	stamp(p.packet[p.payload:], publisher, seq, now())
	return append(b, p.packet...)
}

// readPubacks feeds PUBACKs to w until the connection ends.
func (c *mqttClient) readPubacks(w *window) error {
	var oldest uint64 // no unconfirmed message is older; advances with the acks
	for {
		first, p, err := c.packet()
		if err != nil {
			return err
		}
		if first != mqttPuback || len(p) < 2 {
			continue
		}
		id := uint64(binary.BigEndian.Uint16(p)) - 1
		seq := oldest + (id+packetIDs-oldest%packetIDs)%packetIDs
		oldest = w.confirm(seq, false)
	}
}

// readPublishes calls got for each PUBLISH and answers QoS 1 with PUBACK,
// coalesced while input is waiting. It ends when got returns false.
func (c *mqttClient) readPublishes(got func(payload []byte) (bool, error)) error {
	var acks []byte
	flush := func() error {
		_, err := c.conn.Write(acks)
		acks = acks[:0]
		return err
	}
	for {
		if len(acks) > 0 && (c.r.Buffered() == 0 || len(acks) >= 4096) {
			if err := flush(); err != nil {
				return err
			}
		}
		first, p, err := c.packet()
		if err != nil {
			return err
		}
		if first&0xF0 != mqttPublish || len(p) < 2 {
			continue
		}
		at := 2 + int(binary.BigEndian.Uint16(p))
		if first&0x06 != 0 {
			acks = append(acks, mqttPuback, 2, p[at], p[at+1])
			at += 2
		}
		more, err := got(p[at:])
		if err != nil {
			return err
		}
		if !more {
			return flush()
		}
	}
}

func (c *mqttClient) close() { c.conn.Close() }
