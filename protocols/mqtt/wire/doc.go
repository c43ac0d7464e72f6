// Package wire is the MQTT 3.1.1 and 5.0 codec of Trivium.
//
// Packets that are rare (CONNECT, SUBSCRIBE, ...) are decoded and encoded by
// mochi's packets package; a structural check of every length, property,
// reserved bit and string runs before it, because that package panics or is
// silent on some malformed input. Packets that are frequent (PUBLISH and the
// four acknowledgements) are read in place and written by hand, without
// allocation.
//
// The package is pure apart from Reader, which reads from an io.Reader. It is
// used by the server and by load generators; nothing in it knows a broker.
package wire
