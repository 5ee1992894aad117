//! This machine's support for measuring clocks, as a list of facts with advice.
//!
//! The network facts come from the drivers; the decisive one is a self-test that sends packets and
//! inspects the stamps they receive.
//!
//! It does not check MPI (the command does) and takes no longer than about a second.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use probe_sync_time::{Duration, StampSource, System};
use serde::{Deserialize, Serialize};

use crate::clock::{Tsc, TscFlags};
use crate::discipline::{Discipline, steering_finding, steering_programs};
use crate::host::read_line;
use crate::interfaces::{Interface, InterfaceAddress, default_interface, interfaces};
use crate::neighbours::NeighbourTable;
use crate::nic::timestamping_offer;
use crate::udp::{TimestampMode, TimestampedUdp, UdpOptions};
use crate::{Error, NARROW_BRACKET, RawClock, SystemClock, read_pair, timer};

/// Severity of a finding.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As expected.
    Ok,
    /// Works, but not as well as it could.
    Warn,
    /// Does not work.
    Fail,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fact {
    /// Topic, in a few words.
    pub topic: String,
    /// Severity.
    pub level: Level,
    /// The finding.
    pub finding: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Fact {
    /// Creates a finding that is as expected.
    pub fn ok(topic: impl Into<String>, finding: impl Into<String>) -> Self {
        Self { topic: topic.into(), level: Level::Ok, finding: finding.into(), advice: None }
    }

    /// Creates a finding that degrades a measurement, with advice.
    pub fn warn(topic: impl Into<String>, finding: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { topic: topic.into(), level: Level::Warn, finding: finding.into(), advice: Some(advice.into()) }
    }

    /// Creates a finding that prevents a measurement, with advice.
    pub fn fail(topic: impl Into<String>, finding: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { topic: topic.into(), level: Level::Fail, finding: finding.into(), advice: Some(advice.into()) }
    }
}

/// Programs that synchronise a host's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TimeSync {
    /// Running time synchronisation programs that were found.
    pub daemons: Vec<String>,
    /// True if the kernel was told that the clock is synchronised; `None` if a sandbox hides this.
    pub synchronized: Option<bool>,
}

impl TimeSync {
    /// Reads the state of this host.
    pub fn read() -> Self {
        let daemons = steering_programs().into_iter().map(|program| program.name.to_owned()).collect();
        Self { daemons, synchronized: Discipline::read().ok().map(|state| state.synchronized) }
    }
}

impl std::fmt::Display for TimeSync {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let daemons = if self.daemons.is_empty() { "no daemon found".to_owned() } else { self.daemons.join(" + ") };
        let state = match self.synchronized {
            Some(true) => "synchronized",
            Some(false) => "free-running",
            None => "state unknown",
        };
        write!(f, "{daemons}, {state}")
    }
}

/// Results of sending packets to the host itself.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct SelfTest {
    /// Packets sent.
    sent: u32,
    /// Packets received.
    received: u32,
    /// Packets with kernel stamps on both sides.
    stamped: u32,
    /// Smallest difference between the two stamps of a packet, ns.
    least_delay_ns: Option<i64>,
}

/// Examines this machine and returns the findings in order of printing.
pub fn examine() -> Vec<Fact> {
    let mut facts = Vec::new();
    facts.extend(stamping_facts());
    facts.extend(interface_facts());
    facts.push(neighbour_fact(NeighbourTable::read()));
    facts.push(privilege_fact(read_effective_capabilities()));
    facts.push(discipline_fact(Discipline::read()));
    facts.push(steering_fact(steering_finding(&steering_programs())));
    facts.push(clocksource_fact(clock_source().as_deref()));
    facts.push(tsc_fact(TscFlags::detect(), Tsc::detect().is_some()));
    facts.push(clock_read_fact(clock_read_ns()));
    facts.push(slack_fact(timer::timer_slack_ns()));
    facts
}

/// Returns the name of the kernel's clock source.
pub fn clock_source() -> Option<String> {
    read_line(crate::clock::CLOCKSOURCE)
}

/// Sends [`SELF_TEST_PACKETS`] packets to itself on `loopback` and collects the kernel's stamps.
///
/// # Errors
/// Returns an error if the socket cannot be opened, kernel stamps are refused, or the socket fails.
fn self_test(loopback: IpAddr) -> Result<SelfTest, Error> {
    let bind = SocketAddr::new(loopback, 0);
    let mut udp = TimestampedUdp::bind(&UdpOptions { timestamps: TimestampMode::Kernel, ..UdpOptions::new(bind) })?;
    let mut result = SelfTest { sent: 0, received: 0, stamped: 0, least_delay_ns: None };
    for number in 0..SELF_TEST_PACKETS {
        let Ok(token) = udp.try_send(&number.to_le_bytes(), udp.local_addr()) else { continue };
        result.sent += 1;
        let (mut sent, mut received) = (None, None);
        let mut buffer = [0; 4];
        for attempt in 0..SELF_TEST_ATTEMPTS {
            if let Some((stamped, stamp)) = udp.try_transmit_stamp()? {
                // A stamp of an earlier packet that came too late says nothing about this one.
                sent = sent.or((stamped == token).then_some(stamp));
            }
            if let Some(packet) = udp.try_recv(&mut buffer)? {
                received = received.or((buffer == number.to_le_bytes()).then_some(packet.stamp));
            }
            if sent.is_some() && received.is_some() {
                break;
            }
            if attempt > 0 {
                std::thread::sleep(std::time::Duration::from_micros(50));
            }
        }
        result.received += u32::from(received.is_some());
        if number >= SELF_TEST_HOPELESS && result.stamped == 0 {
            break;
        }
        if let (Some(sent), Some(received)) = (sent, received)
            && received.source == StampSource::Kernel
        {
            result.stamped += 1;
            let delay_ns = (received.at - sent.at).as_ns();
            result.least_delay_ns = Some(result.least_delay_ns.map_or(delay_ns, |least| least.min(delay_ns)));
        }
    }
    Ok(result)
}

fn stamping_facts() -> Vec<Fact> {
    let tests = [("IPv4", IpAddr::from(Ipv4Addr::LOCALHOST)), ("IPv6", IpAddr::from(Ipv6Addr::LOCALHOST))];
    tests.map(|(family, loopback)| self_test_fact(family, self_test(loopback))).into()
}

fn self_test_fact(family: &str, result: Result<SelfTest, Error>) -> Fact {
    let topic = format!("kernel stamps, {family}");
    let advice = "with --timestamps user the run takes its own timestamps, which are a few hundred ns less accurate";
    match result {
        Err(error @ Error::Bind { .. }) => {
            Fact::warn(topic, error.to_string(), format!("{family} is not available here; try the other family"))
        }
        Err(error) => Fact::fail(topic, error.to_string(), advice),
        Ok(SelfTest { received: 0, sent, .. }) => {
            let finding = format!("none of the {sent} packets sent to itself arrived");
            Fact::fail(topic, finding, "check the firewall and the loopback interface (`ip link set lo up`)")
        }
        Ok(SelfTest { sent, stamped, least_delay_ns, .. }) => {
            let delay = least_delay_ns.map_or_else(String::new, |ns| format!(", least delay {ns} ns"));
            let finding = format!("{stamped} of {sent} packets timestamped on both sides{delay}");
            match stamped {
                0 => Fact::fail(topic, finding, advice),
                stamped if stamped < sent => {
                    Fact::warn(topic, finding, "the machine is busy, so exchanges will be dropped")
                }
                _ => Fact::ok(topic, finding),
            }
        }
    }
}

fn interface_facts() -> Vec<Fact> {
    let interfaces = match interfaces() {
        Ok(interfaces) => interfaces,
        Err(error) => return vec![Fact::fail("interfaces", error.to_string(), "is this a very strict sandbox?")],
    };
    let outward = default_interface();
    let usable = interfaces.iter().filter(|interface| interface.up && !interface.addresses.is_empty());
    let mut facts: Vec<Fact> =
        usable.map(|interface| interface_fact(interface, outward.as_deref() == Some(&interface.name))).collect();
    if outward.is_none() {
        facts.push(Fact::ok("default route", "none; a run uses the network that all its hosts share"));
    }
    facts
}

fn interface_fact(interface: &Interface, outward: bool) -> Fact {
    let route = if outward { ", default route" } else { "" };
    let topic = format!("interface {}", interface.name);
    let offer = match timestamping_offer(&interface.name) {
        Ok(offer) => offer,
        Err(error) => {
            let advice = "its driver does not report this; a short run will show whether transmit timestamps arrive";
            return Fact::warn(topic, format!("{error}{route}"), advice);
        }
    };
    let kernel = match (offer.kernel_transmit, offer.kernel_receive) {
        (true, true) => "kernel timestamps in both directions",
        (false, _) => "no kernel transmit timestamps",
        (true, false) => "no kernel receive timestamps",
    };
    let hardware = match (offer.hardware_complete(), offer.hardware_transmit || offer.hardware_receive) {
        (true, _) => format!("hardware timestamps on /dev/ptp{}", offer.phc_index.unwrap_or_default()),
        (false, true) => "hardware timestamps of some packets only".to_owned(),
        (false, false) => "no hardware timestamps".to_owned(),
    };
    let finding = format!("{kernel}, {hardware}{route}");
    if offer.kernel_transmit && offer.kernel_receive {
        return Fact::ok(topic, finding);
    }
    match interface.addresses.first().map(kernel_stamps_come) {
        Some(Ok(())) => {
            Fact::ok(topic, format!("{finding} according to its driver; an underlying device timestamps its packets"))
        }
        Some(Err(reason)) => Fact::warn(topic, format!("{finding}; {reason}"), NO_STAMPS_ADVICE),
        None => Fact::warn(topic, finding, NO_STAMPS_ADVICE),
    }
}

/// Tests kernel stamps from an address by sending packets, as a run does.
fn kernel_stamps_come(address: &InterfaceAddress) -> Result<(), String> {
    let bind = match address.ip {
        IpAddr::V4(ip) => SocketAddr::from((ip, 0)),
        IpAddr::V6(ip) => SocketAddrV6::new(ip, 0, 0, address.scope_id).into(),
    };
    let udp = TimestampedUdp::bind(&UdpOptions::new(bind)).map_err(|error| error.to_string())?;
    match udp.stamp_source() {
        StampSource::User => Err(udp.stamp_notes().last().cloned().unwrap_or_default()),
        StampSource::Hardware | StampSource::Kernel => Ok(()),
    }
}

fn neighbour_fact(table: Option<NeighbourTable>) -> Fact {
    let topic = "neighbour table";
    match table {
        None => Fact::ok(topic, "not visible from this network namespace"),
        Some(NeighbourTable { entries, overflows: 0, limit }) => {
            Fact::ok(topic, format!("{entries} of at most {limit}"))
        }
        Some(NeighbourTable { entries, overflows, limit }) => Fact::warn(
            topic,
            format!("{entries} of at most {limit}; {overflows} entries did not fit since the machine started"),
            "raise net.ipv4.neigh.default.gc_thresh3 above the number of hosts in this network, or some cannot be reached",
        ),
    }
}

/// Reads `CapEff` from /proc/self/status, as a bit mask.
fn read_effective_capabilities() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    parse_capabilities(&status)
}

fn parse_capabilities(status: &str) -> Option<u64> {
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

fn privilege_fact(capabilities: Option<u64>) -> Fact {
    let topic = "privileges";
    let Some(mask) = capabilities else {
        return Fact::ok(topic, "unknown (no /proc); none are required");
    };
    let has = |capability: u32| mask & (1 << capability) != 0;
    let state = |capability| if has(capability) { "yes" } else { "no" };
    let finding = format!(
        "CAP_NET_ADMIN {} (enables hardware timestamps), CAP_SYS_NICE {} (real-time priority); neither is required",
        state(CAP_NET_ADMIN),
        state(CAP_SYS_NICE),
    );
    Fact::ok(topic, finding)
}

fn discipline_fact(discipline: Result<Discipline, Error>) -> Fact {
    let topic = "system clock";
    match discipline {
        Err(error) => Fact::warn(topic, error.to_string(), "a sandbox hides how the clock is steered"),
        Ok(state) if state.leap_second_near => {
            Fact::warn(topic, "a leap second is pending", "windows around it will be marked; align traces after it")
        }
        Ok(state) if state.synchronized => {
            let finding = format!(
                "steered by a time daemon: rate corrected by {:+.3} ppm, estimated error {} µs",
                state.frequency_ppm, state.estimated_error_us
            );
            Fact::ok(topic, finding)
        }
        Ok(state) => {
            let finding = format!("free-running, rate corrected by {:+.3} ppm", state.frequency_ppm);
            Fact::ok(topic, finding + "; this is fine for measuring, but offsets between hosts may be large")
        }
    }
}

fn steering_fact((finding, advice): (String, Option<&'static str>)) -> Fact {
    let topic = "clock steering";
    match advice {
        Some(advice) => Fact::warn(topic, finding, advice),
        None => Fact::ok(topic, finding),
    }
}

fn clocksource_fact(current: Option<&str>) -> Fact {
    let topic = "clock source";
    match current {
        Some(source @ ("tsc" | "kvm-clock" | "arch_sys_counter" | "hyperv_clocksource_tsc_page")) => {
            Fact::ok(topic, source)
        }
        Some(source) => {
            let advice =
                "each clock read is a slow system call; boot with clocksource=tsc if the CPU's TSC is invariant";
            Fact::warn(topic, source, advice)
        }
        None => Fact::warn(topic, "unknown", "/sys is not readable here"),
    }
}

fn tsc_fact(flags: TscFlags, usable: bool) -> Fact {
    let topic = "time-stamp counter";
    if usable {
        return Fact::ok(topic, "constant_tsc, nonstop_tsc");
    }
    let finding = format!("constant_tsc {}, nonstop_tsc {}", flags.constant, flags.nonstop);
    Fact::warn(topic, finding, "traces of profilers that use the TSC cannot be aligned on this host")
}

/// Returns the narrowest bracket of several readings, about the time of two clock reads, ns.
fn clock_read_ns() -> i64 {
    let bracket = |_| read_pair::<System, _>(&SystemClock, &RawClock, Duration::ZERO).bracket.as_ns();
    (0..16).map(bracket).min().unwrap_or_default()
}

fn clock_read_fact(bracket_ns: i64) -> Fact {
    let finding = format!("reading two clocks takes {bracket_ns} ns");
    if bracket_ns <= 2 * NARROW_BRACKET.as_ns() {
        Fact::ok("clock reads", finding)
    } else {
        Fact::warn("clock reads", finding, "clock reads do not use the vDSO; check the clock source")
    }
}

fn slack_fact(slack: Result<u64, Error>) -> Fact {
    let topic = "timer slack";
    match slack {
        // The probe schedule runs on a timerfd, which has no slack.
        Ok(ns) => Fact::ok(topic, format!("{ns} ns; the probe thread sets its own to 1000 ns")),
        Err(error) => Fact::warn(topic, error.to_string(), "waits may be late by about 50 µs"),
    }
}

/// Advice if the kernel delivers no transmit stamps.
const NO_STAMPS_ADVICE: &str = "on this interface a run takes its own timestamps, which are about 10 µs less accurate; use \
    --interface to choose an interface whose driver timestamps packets";
/// Packets of a [`self_test`].
const SELF_TEST_PACKETS: u32 = 200;

/// Attempts to receive a packet and its stamp, some 50 µs apart.
const SELF_TEST_ATTEMPTS: u32 = 400;

/// Packets without a single stamp after which the test ends.
const SELF_TEST_HOPELESS: u32 = 10;

const CAP_NET_ADMIN: u32 = 12;
const CAP_SYS_NICE: u32 = 23;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_comes_with_advice() {
        let test = |sent, received, stamped| Ok(SelfTest { sent, received, stamped, least_delay_ns: Some(103) });
        let refused = || Error::Stamps { kind: "kernel", interface: None, reason: "SO_TIMESTAMPING: denied".into() };
        let bind = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
        let unbound = Error::Bind { address: bind, source: std::io::ErrorKind::Unsupported.into(), advice: "" };
        let check = |fact: Fact, level, finding: &str| {
            assert_eq!((fact.level, fact.advice.is_some()), (level, level != Level::Ok), "{fact:?}");
            assert!(fact.finding.contains(finding), "{fact:?}");
        };
        check(
            self_test_fact("IPv4", test(200, 200, 200)),
            Level::Ok,
            "200 of 200 packets timestamped on both sides, least",
        );
        check(self_test_fact("IPv4", test(200, 200, 190)), Level::Warn, "190 of 200");
        check(self_test_fact("IPv4", test(200, 200, 0)), Level::Fail, "0 of 200");
        check(self_test_fact("IPv4", test(200, 0, 0)), Level::Fail, "none of the 200");
        check(self_test_fact("IPv4", Err(refused())), Level::Fail, "denied");
        check(self_test_fact("IPv6", Err(unbound)), Level::Warn, "::1");
        check(steering_fact(("chrony steers".into(), None)), Level::Ok, "chrony");
        check(steering_fact(("two steer".into(), Some("leave one"))), Level::Warn, "two");
        check(clocksource_fact(Some("tsc")), Level::Ok, "tsc");
        check(clocksource_fact(Some("hpet")), Level::Warn, "hpet");
        check(clocksource_fact(None), Level::Warn, "unknown");
        check(tsc_fact(TscFlags { constant: true, nonstop: false }, false), Level::Warn, "nonstop_tsc false");
        check(clock_read_fact(60), Level::Ok, "60 ns");
        check(clock_read_fact(2_000), Level::Warn, "2000 ns");
        let table = |overflows| Some(NeighbourTable { entries: 9, overflows, limit: 1024 });
        check(neighbour_fact(table(0)), Level::Ok, "9 of at most 1024");
        check(neighbour_fact(table(3)), Level::Warn, "3 entries did not fit");
        check(neighbour_fact(None), Level::Ok, "namespace");
        check(privilege_fact(Some(1 << CAP_NET_ADMIN)), Level::Ok, "CAP_NET_ADMIN yes");
        check(privilege_fact(None), Level::Ok, "unknown");
    }

    #[test]
    fn capabilities_are_read_from_the_status_file() {
        let check = |text: &str, expected| assert_eq!(parse_capabilities(text), expected);
        check("Name:\tx\nCapInh:\t0\nCapEff:\t00000000a80425fb\n", Some(0xa804_25fb));
        check("CapEff:\tno\n", None);
        check("", None);
    }

    #[test]
    fn this_machine_can_be_examined() {
        let facts = examine();
        for topic in
            ["kernel stamps, IPv4", "system clock", "clock steering", "clock source", "privileges", "interface lo"]
        {
            assert!(facts.iter().any(|fact| fact.topic == topic), "{topic} is missing in {facts:#?}");
        }
        let json = serde_json::to_string(&facts).expect("plain data");
        assert!(json.contains("\"level\":\"ok\""), "{json}");
    }

    #[test]
    fn packets_to_itself_are_all_stamped() {
        let result = self_test(Ipv4Addr::LOCALHOST.into()).expect("loopback works");
        assert_eq!((result.sent, result.received, result.stamped), (200, 200, 200));
        assert!(result.least_delay_ns.is_some_and(|ns| ns > 0), "{result:?}");
    }
}
