/** Alarms of levels: which finding tells one, and the address that shows it. */
import type { Decoded, Finding, LevelAlarm } from "../../data/document";

/** The alarm that a finding tells, or null. */
export function alarmOf(doc: Decoded, finding: Finding): LevelAlarm | null {
  const number = doc.findings.indexOf(finding);
  return doc.levels?.alarms.find((one) => one.finding === number && one.finding >= 0) ?? null;
}

/** What of the address shows an alarm: its quantity, and the curve of its layer. */
export function toAlarm(alarm: LevelAlarm): Record<string, string> {
  return { of: alarm.quantity, layers: alarm.name, from: "", to: "" };
}
